"""Traces of what neighbours mean for own steps: nothing signed before it is live, or alone with one (SPEC 9.1, 9.2)."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.wire import PullDone, Records
from tests.support.ledgers import ledger_of, seal
from tests.vectors.runs import EXAMPLE, record, run
from tests.vectors.trace_recorder import ME, Story, X, Y, head_of

CURRENT, SHORT = run({}, staleness=0), run({}, steps=3)  # as in trace_steps
ROUNDS, CROWDED = run({"directions": 2, "local_steps": 4, "clip": 100}, steps=400), run({}, authors_max=2)


def stories_in_company() -> Iterator[Story]:
    """Stand last in traces_steps.json: the names of what the others hold stay."""
    yield from _joined()
    yield _slow_pull()
    yield from _company()
    yield _half_and_the_rest()
    yield _sixteen()
    yield from _reserved()
    yield _two_of_five()
    yield from _heard_from_the_frontier_on()
    yield from _exact()
    yield from _met()


def _own(step: int) -> bytes:
    """A record that the node itself signed in a former life."""
    return record(EXAMPLE, step, 5, author=ME)


# --- 9.2.3: nothing is signed before a neighbour has told


def _joined() -> Iterator[Story]:
    """SPEC 9.2.3, of a node that was told of no peers."""
    full = ledger_of(EXAMPLE, [_own(step) for step in range(2, 7)] + [seal(EXAMPLE, 1, 5)])
    told = Story("told of no peers, joined by one: signs nothing before it is live", EXAMPLE, held=[_own(2)])
    told.join(5, X).tick(10).worker_ready(20).tick(2_000)
    yield told.catch_up(2_100, X, full, step=5).estimated(3_000, 7)

    told = Story("joined while it measures: that is not signed before it is live, and later not either", EXAMPLE)
    told.tick(0).worker_ready(10).join(20, X).estimated(500, 0).tick(550)
    yield told.catch_up(600, X, full, step=5).estimated(3_000, 7)

    told = Story("joined by one that does not answer: goes on 30 s later, even if that one has left", EXAMPLE)
    told.tick(0).join(10_000, X).worker_ready(10_010).leave(12_000, X)
    yield told.ticks(30_000, 39_999, 40_000)


def _slow_pull() -> Story:
    told = Story("the records of one pull come slowly: 30 s do not run out while they do", EXAMPLE, expects_peers=True)
    records = [_own(step) for step in range(3, 7)]
    told.tick(0).worker_ready(10).join(20, X).until_pull(30, X, ledger_of(EXAMPLE, records))
    request = told.request(X)
    assert request is not None
    for number, each in enumerate(records):
        told.tell(9_000 * (number + 1), X, Records(request=request.request, data=each))
        told.tick(9_000 * (number + 1) + 100)
    return told.tell(36_200, X, PullDone(request=request.request, records=4))


# --- 9.1.4: nobody is heard of, but a neighbour has work


def _in_company(name: str, work_distance: int = 0) -> Story:
    """Alone with a neighbour of whom nothing is heard: the steps 0 to 8 take 100 ms each, and begin with 0."""
    told = Story(name, EXAMPLE).tick(0).join(10, X).same(20, X, work_distance=work_distance).worker_ready(100)
    for step in range(9):
        told.estimated(200 + 100 * step, step)
    return told


def _company() -> Iterator[Story]:
    told = _in_company("no author at work, a neighbour with work: eight rounds, and then not for 30 s")
    told.ticks(1_050, 30_099, 30_100).estimated(30_200, 9).leave(30_300, X).join(30_400, X).same(30_500, X)
    for step in range(10, 20):
        told.estimated(30_600 + 100 * (step - 10), step)
    yield told

    yield _in_company("no author at work, the neighbour has no work itself: goes on", 1)

    told = _in_company("it waits so; an author is heard of and followed, falls silent, and is waited for again")
    told.push(2_000, X, seal(EXAMPLE, 1, 8)).tick(2_050)
    for step in range(9, 17):
        told.estimated(2_100 + 100 * (step - 9), step).tick(2_150 + 100 * (step - 9))
    told.ticks(32_000, 32_001)
    for step in range(17, 26):
        told.estimated(32_100 + 100 * (step - 17), step)
    yield told.ticks(62_000, 62_001)


# --- 9.1.2: paces


def _half_and_the_rest() -> Story:
    """The first two paces are 400 ms: up to half. Up to the start the second one would be 420."""
    told = Story("pace ends with half of them, not with the wait for the others: a twentieth of it", CURRENT)
    told.tick(0).join(10, X).same(20, X, work_distance=1).worker_ready(1_000).estimated(1_400, 0)
    told.push(1_500, X, *(seal(CURRENT, author, 0) for author in (1, 2, 3)))
    told.push(1_600, X, seal(CURRENT, 1, 1)).estimated(1_800, 1).ticks(1_819, 1_820)
    return told.estimated(2_300, 2).ticks(3_099, 3_100)


def _sixteen() -> Story:
    """Nine paces of a second, then eight of 400 ms: the last sixteen have a median of 700."""
    told = Story("pace is that of sixteen steps, no more and no fewer", CURRENT).tick(0).worker_ready(0)
    for step in range(9):
        told.estimated(1_000 * (step + 1), step)
    for step in range(9, 17):
        told.estimated(9_000 + 400 * (step - 8), step)
    told.join(12_210, X).same(12_220, X, work_distance=1)
    told.push(12_230, X, *(seal(CURRENT, author, 15) for author in (1, 2, 3)))
    return told.estimated(12_600, 17).ticks(13_999, 14_000)


# --- 9.2.1: reserved


def _reserved() -> Iterator[Story]:
    yield Story("killed over the last round: has finished", SHORT, reserved_step=2).tick(0).worker_ready(10).tick(300)

    name = "reserved beyond what its disk holds, and where the others are: goes on after it"
    told = Story(name, EXAMPLE, held=[_own(3), seal(EXAMPLE, 1, 5)], reserved_step=8)
    yield told.tick(0).worker_ready(10).estimated(500, 9)


def _two_of_five() -> Story:
    """With one author fewer behind, half of them would be there."""
    held = [_own(step) for step in range(10)] + [seal(EXAMPLE, author, 7 + (author == 1)) for author in (1, 2, 3, 4)]
    told = Story("two of five are there: waits for five seconds", EXAMPLE, held=held, reserved_step=9)
    return told.tick(1_000).worker_ready(1_000).ticks(1_250, 5_999, 6_000)


# --- 9.1: heard of before it is live; each Head has the frontier


def _heard_from_the_frontier_on() -> Iterator[Story]:
    told = Story("not live: an author at the very frontier is heard of", EXAMPLE, is_training=False).tick(0)
    told.join(10, X).push(20, X, seal(EXAMPLE, 1, 4)).push(30, X, seal(EXAMPLE, 2, 4)).push(40, X, seal(EXAMPLE, 1, 8))
    yield told.tick(2_100)

    told = Story("not live: the frontier is that before the message's first record", EXAMPLE, is_training=False).tick(0)
    yield told.join(10, X).push(20, X, seal(EXAMPLE, 1, 9), seal(EXAMPLE, 2, 4)).tick(2_100)


# --- what a plausible other reading of SPEC 9.1 and 9.2 gets wrong


def _exact() -> Iterator[Story]:
    held = [record(CROWDED, 0, 5, author=ME), seal(CROWDED, 1, 0)]
    told = Story("the author table is full, and it has a place there: goes on", CROWDED, held=held, reserved_step=0)
    told.tick(0).join(5, X).same(10, X).worker_ready(20).push(30, X, seal(CROWDED, 2, 0)).estimated(500, 1)
    yield told.tick(550)

    told = Story("two neighbours join and do not answer: 30 s from the first", EXAMPLE, expects_peers=True).tick(0)
    yield told.join(10_000, X).worker_ready(10_010).join(20_000, Y).ticks(39_999, 40_000)

    told = _in_company("it waits so; the neighbour is done and has work again: what is left of the same 30 s")
    told.same(5_000, X, work_distance=1).same(5_500, X).estimated(6_000, 9)
    yield told.ticks(6_050, 30_099, 30_100)

    for rounds, name in ((8, "counts: goes on"), (9, "does not: the slow one is waited for")):
        held = [*(_own(step) for step in range(20)), seal(EXAMPLE, 1, 19 + rounds), seal(EXAMPLE, 2, 3)]
        told = Story(f"of three one is {rounds} rounds ahead, which {name}", EXAMPLE, held=held, reserved_step=19)
        told.tick(0).join(0, X).same(5, X).push(1_000, X, seal(EXAMPLE, 1, 20 + rounds), seal(EXAMPLE, 2, 4))
        yield told.worker_ready(1_100).ticks(1_150)

    for first_ms, second_ms, grace_ms in ((410, 800, 30), (20, 101, 3), (6_000, 9_000, 375)):
        name = f"paces of {first_ms} and {second_ms} ms: waits for the others for {grace_ms} ms"
        told = Story(name, CURRENT).tick(0).join(10, X).same(20, X, work_distance=1).worker_ready(1_000)
        done_ms = 1_000 + first_ms + second_ms
        told.estimated(1_000 + first_ms, 0).estimated(done_ms, 1)
        told.push(done_ms, X, seal(CURRENT, 1, 2), seal(CURRENT, 2, 2), seal(CURRENT, 3, 1)).estimated(done_ms + 500, 2)
        yield told.ticks(done_ms + 499 + grace_ms, done_ms + 500 + grace_ms)

    told = Story(
        "of three met two are heard of: the lower median of these",
        EXAMPLE,
        held=[seal(EXAMPLE, 1, 25)],
        is_training=False,
    )
    told.tick(0).join(10, X).same(20, X, step=25).push(1_000, X, seal(EXAMPLE, 2, 20), seal(EXAMPLE, 3, 30))
    yield told.tick(2_100)

    told = Story("paused while it measures, and the others are done: finished after that", SHORT).tick(0).join(10, X)
    told.same(20, X).worker_ready(30).switch(40, is_on=False).push(50, X, seal(SHORT, 1, 2))
    yield told.tick(100).estimated(500, 0)


def _met() -> Iterator[Story]:
    for step, name in (
        (44, "all up to 64 rounds behind the slower of two neighbours"),
        (40, "nobody 65 rounds behind it"),
    ):
        held = [seal(ROUNDS, 1, step), seal(ROUNDS, 2, step), seal(ROUNDS, 3, 300)]
        told = Story(f"a newcomer meets {name}", ROUNDS, held=held, is_training=False).tick(0).join(10, X, Y)
        told.tell(15, Y, head_of(ledger_of(ROUNDS, []), step=396)).same(20, X, step=300)
        yield told.push(1_000, X, seal(ROUNDS, 4, 320)).tick(2_100)

    held = [seal(SHORT, 1, 2), seal(SHORT, 2, 0), seal(SHORT, 3, 0)]
    told = Story(
        "nobody is heard of, and one has done the last round: a relay has finished", SHORT, held=held, is_training=False
    )
    yield told.tick(0).join(10, X).same(20, X)
