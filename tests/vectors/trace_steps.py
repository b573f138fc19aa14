"""Traces of a node's own steps: when it starts one, whom it waits for, what it never signs (SPEC 9.1, 9.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from protocol.run.manifest import Manifest
from protocol.wire import Records
from tests.support.ledgers import ledger_of, seal
from tests.vectors.notation import Document
from tests.vectors.runs import EXAMPLE, record, run
from tests.vectors.trace_company import stories_in_company
from tests.vectors.trace_directions import DENSE, SLICED, stories_of_directions
from tests.vectors.trace_files import traces
from tests.vectors.trace_recorder import ME, Story, X, Y, head_of

SHORT = run({}, steps=3)
CURRENT = run({}, staleness=0)
ROUNDS = run({"directions": 2, "local_steps": 4, "clip": 100}, steps=400)
CROWDED = run({}, authors_max=2)
_MANIFESTS = {"example": EXAMPLE, "short": SHORT, "current": CURRENT, "rounds": ROUNDS, "crowded": CROWDED}
_MANIFESTS |= {"sliced": SLICED, "dense": DENSE}


def steps() -> Document:
    """traces_steps.json"""
    return traces("A node's own steps: SPEC 9.1, 9.2", _stories, _MANIFESTS)


def own(step: int, *scalars: int, manifest: Manifest = EXAMPLE) -> bytes:
    """A record that the node itself signed in a former life."""
    return record(manifest, step, *(scalars or (5,) * manifest.method.scalars), author=ME)


def _stories() -> Iterator[Story]:
    yield from _starting()
    yield from _waiting()
    yield from _jumping()
    yield from _signing()
    yield from _pausing()
    yield from stories_of_directions()
    yield from stories_in_company()


# --- starting


def _starting() -> Iterator[Story]:
    told = Story("alone: trains from its first tick to the last step", SHORT)
    told.worker_ready(5).ticks(10).estimated(1_000, 0).tick(1_050).estimated(2_000, 1)
    yield told.skipped(3_000, 2).ticks(3_250)

    told = Story(
        "two neighbours: signs nothing before it is live, and is so with an equal head", EXAMPLE, expects_peers=True
    )
    told.tick(0).worker_ready(10).join(20, X, Y).tick(70).same(100, X).estimated(1_000, 0).same(1_010, Y)
    yield told.push(1_100, X, seal(EXAMPLE, 1, 0)).ticks(1_150, 2_050)

    told = Story("a relay: stores and passes on, and never estimates", EXAMPLE, is_training=False)
    yield told.tick(0).worker_ready(10).join(20, X, Y).same(30, X).push(40, X, seal(EXAMPLE, 1, 0)).ticks(90, 9_000)

    told = Story("worker: a round that it skips, one over which it dies, one that was not asked for", EXAMPLE)
    told.tick(0).worker_ready(10).skipped(500, 0).lost(600, 1).ticks(650, 700).worker_ready(800)
    yield told.estimated(900, 7, 5).estimated(1_000, 2)


# --- 9.1.1, 9.1.2, 9.1.4: whom it waits for


def _waiting() -> Iterator[Story]:
    yield _behind_by(6, "one author two rounds behind what is needed is waited for, and no more than 250 ms")
    yield _behind_by(5, "one author three rounds behind what is needed is not active: not waited for")
    yield _behind_by(8, "one author who has what is needed is not waited for")

    held = [own(step) for step in range(10)] + [seal(EXAMPLE, author, 7) for author in (1, 2, 3)]
    told = Story("fewer than half are there: waits for five seconds", EXAMPLE, held=held, reserved_step=9)
    told.tick(1_000).worker_ready(1_000).ticks(1_250, 1_300, 5_999)
    yield told.tick(6_000)

    told = Story(
        "half come while it waits: then 250 ms after its last step at the most", EXAMPLE, held=held, reserved_step=9
    )
    told.tick(1_000).worker_ready(1_000).join(1_010, X).same(1_020, X).push(1_100, X, seal(EXAMPLE, 1, 8)).tick(1_150)
    told.push(1_200, X, seal(EXAMPLE, 2, 8)).tick(1_249)
    yield told.tick(1_250)

    yield _paces()
    yield _late_ones_do_not_count()
    yield _half_comes_late()
    yield _last_sixteen()

    told = Story("it waits 30 s at the most", CURRENT).tick(0).worker_ready(0).join(10, X).same(10, X)
    told.push(15_000, X, *(seal(CURRENT, author, 0) for author in (1, 2, 3))).estimated(20_000, 0).estimated(40_000, 1)
    yield told.ticks(40_100, 69_999, 70_000)

    told = Story("it waits 30 s at the most, for the slower half too", CURRENT).tick(0).worker_ready(0).join(10, X)
    told.same(10, X).push(3_600_000, X, *(seal(CURRENT, author, 0) for author in (1, 2, 3))).estimated(3_600_500, 0)
    told.push(7_200_000, X, seal(CURRENT, 1, 1), seal(CURRENT, 2, 1)).estimated(7_200_500, 1)
    yield told.ticks(7_201_000, 7_230_499, 7_230_500)

    yield _fast_node()
    yield _heard_once()
    yield _quick_ones()
    yield _slow_ones()
    yield _majority_leaves()
    yield _one_of_three("of three at work one is slow: the two others go on", 18, 19)
    yield _one_of_three("of three at work one signs far ahead: the slow one is waited for", 38, 39)
    yield _rest("most rest who took 100 s for a step: they count for 800 s", 100_000, 800_000)
    yield _rest("most rest who took 500 s for a step: they count for an hour", 500_000, 3_600_000)

    told = Story(
        "in rounds of four steps all of this counts in rounds", ROUNDS, held=[seal(ROUNDS, 1, 4)], reserved_step=12
    )
    yield told.tick(0).worker_ready(0).ticks(249, 250).estimated(900, 16).ticks(1_000)


def _behind_by(theirs: int, text: str) -> Story:
    held = [own(9), seal(EXAMPLE, 1, theirs)]
    told = Story(text, EXAMPLE, held=held, reserved_step=9)
    return told.tick(1_000).worker_ready(1_000).ticks(1_249, 1_250)


def _paces() -> Story:
    """Paces of 600, 701, 802 and 903 ms."""
    told = Story("pace: the median of its last steps says how long it waits", CURRENT)
    told.tick(0).worker_ready(0).join(10, X).same(10, X)
    now_ms = 0
    for step in range(4):
        now_ms += 600 + 101 * step
        told.estimated(now_ms, step)
    held = [seal(CURRENT, author, step) for author in (1, 2, 3) for step in (2,)]
    told.push(now_ms + 50, X, *held).estimated(now_ms + 500, 4)
    told.push(now_ms + 600, X, *(seal(CURRENT, author, 3) for author in (1, 2, 3)))
    waiting_ms = now_ms + 500
    for after_ms in (100, 1_501, 1_502, 1_503):
        told.tick(waiting_ms + after_ms)
    return told


def _late_ones_do_not_count() -> Story:
    told = Story("a wait that ran to its limit does not raise the pace", CURRENT).tick(0).worker_ready(0).join(10, X)
    told.same(10, X)
    told.estimated(400, 0).push(410, X, *(seal(CURRENT, author, 0) for author in (1, 2, 3))).estimated(800, 1)
    told.ticks(1_599, 1_600).push(2_900, X, *(seal(CURRENT, author, 1) for author in (1, 2, 3)))
    return told.estimated(3_000, 2).ticks(3_799, 3_800)


def _half_comes_late() -> Story:
    told = Story("pace ends when half have what is needed, not when the node itself is done", CURRENT).tick(0)
    told.worker_ready(0).join(10, X).same(10, X)
    told.push(100, X, *(seal(CURRENT, author, 0) for author in (1, 2, 3))).estimated(400, 0).estimated(800, 1)
    told.push(1_300, X, *(seal(CURRENT, author, 1) for author in (1, 2, 3))).estimated(1_700, 2)
    return told.ticks(2_500, 2_999, 3_000)


def _last_sixteen() -> Story:
    told = (
        Story("pace is that of the last sixteen steps; it waits 200 ms at the least", CURRENT).tick(0).worker_ready(0)
    )
    for step in range(18):
        told.estimated(3_000 * (step + 1), step)
    for step in range(18, 34):
        told.estimated(54_000 + 60 * (step - 17), step)
    told.join(54_970, X).same(54_975, X).push(54_980, X, *(seal(CURRENT, author, 33) for author in (1, 2, 3)))
    return told.estimated(55_020, 34).ticks(55_070, 55_219, 55_220)


def _ahead(name: str) -> Story:
    """Held on the disk: own steps up to 19, and three others who were far behind."""
    held = [own(step) for step in range(20)] + [seal(EXAMPLE, author, 3) for author in (1, 2, 3)]
    return Story(name, EXAMPLE, held=held, reserved_step=19).tick(0).join(0, X).same(5, X)


def _heard_once() -> Story:
    told = _ahead("heard of once, no interval known: at work for 30 s")
    told.push(1_000, X, *(seal(EXAMPLE, author, 9) for author in (1, 2, 3)))
    return told.worker_ready(1_100).ticks(30_999, 31_000, 31_001)


def _quick_ones() -> Story:
    told = _ahead("intervals are smoothed; quick authors are at work for 5 s")
    for now_ms, step in ((1_000, 8), (1_200, 9), (2_000, 10)):
        told.push(now_ms, X, *(seal(EXAMPLE, author, step) for author in (1, 2, 3)))
    return told.worker_ready(2_100).ticks(6_999, 7_000, 7_001)


def _slow_ones() -> Story:
    told = _ahead("slow authors are at work for 60 s")
    for now_ms, step in ((1_000, 8), (21_000, 9)):
        told.push(now_ms, X, *(seal(EXAMPLE, author, step) for author in (1, 2, 3)))
    return told.worker_ready(21_100).ticks(80_999, 81_000, 81_001)


def _fast_node() -> Story:
    told = _ahead("ahead of a slower majority that is at work: no more than eight rounds")
    for number, now_ms in enumerate((1_000, 2_000)):
        told.push(now_ms, X, *(seal(EXAMPLE, author, 10 + number) for author in (1, 2, 3)))
    told.worker_ready(2_100).ticks(2_150, 7_200)
    told.push(7_300, X, *(seal(EXAMPLE, author, 12) for author in (1, 2)))
    return told.tick(7_350)


def _majority_leaves() -> Story:
    told = _ahead("the majority has left: goes on after eight of its usual intervals, of a second each")
    for number, now_ms in enumerate((1_000, 2_000, 3_001)):  # smoothed to 1,000.25 ms, so to 1,000
        told.push(now_ms, X, *(seal(EXAMPLE, author, 8 + number) for author in (1, 2, 3)))
    return told.worker_ready(3_100).ticks(3_150, 9_000, 11_001, 11_002)


def _one_of_three(name: str, held_step: int, step: int) -> Story:
    held = [*(own(step) for step in range(20)), seal(EXAMPLE, 1, held_step), seal(EXAMPLE, 2, 3)]
    told = Story(name, EXAMPLE, held=held, reserved_step=19).tick(0).join(0, X).same(5, X)
    return told.push(1_000, X, seal(EXAMPLE, 1, step), seal(EXAMPLE, 2, 4)).worker_ready(1_100).ticks(1_150)


def _rest(name: str, interval_ms: int, patience_ms: int) -> Story:
    """Three authors were heard of twice; then a fourth goes on alone."""
    told = Story(name, EXAMPLE, is_training=False).tick(0).join(10, X).same(20, X)
    for number in range(2):
        told.push(1_000 + number * interval_ms, X, *(seal(EXAMPLE, author, number) for author in (1, 2, 3)))
    over_ms = 1_000 + interval_ms + patience_ms
    return told.push(over_ms - 20_000, X, seal(EXAMPLE, 4, 30)).ticks(over_ms, over_ms + 2_100)


# --- 9.1.3, 9.1.5: where it goes on, and where it ends


def _jumping() -> Iterator[Story]:
    told = Story("behind the frontier: jumps to the lower median of those heard of", EXAMPLE)
    told.tick(0).join(10, X).same(20, X)
    told.push(100, X, seal(EXAMPLE, 1, 10), seal(EXAMPLE, 2, 20), seal(EXAMPLE, 3, 30), seal(EXAMPLE, 4, 39))
    yield told.worker_ready(200).estimated(500, 20)

    told = Story("one of two runs ahead: does not drag the third along", EXAMPLE, held=[own(9)], reserved_step=9)
    told.tick(0).join(10, X).same(20, X).push(100, X, seal(EXAMPLE, 1, 9), seal(EXAMPLE, 2, 39))
    yield told.worker_ready(200)

    held = [seal(EXAMPLE, 1, 3), seal(EXAMPLE, 2, 3), seal(EXAMPLE, 3, 3)]
    told = Story("one goes on while most are silent: moves the frontier after ten minutes", EXAMPLE, held=held)
    told.tick(0).join(10, X).same(20, X).push(1_000, X, seal(EXAMPLE, 4, 30)).tick(3_000)
    told.push(595_000, X, seal(EXAMPLE, 4, 31)).ticks(600_020, 602_100)
    yield told.ticks(655_000, 657_100)  # then nobody has been heard for a minute: all count

    held = [seal(EXAMPLE, 1, 3)]
    told = Story("old steps of an author raise nothing: it is not heard of", EXAMPLE, held=held, is_training=False)
    told.tick(0).join(10, X).same(20, X)
    told.push(100, X, seal(EXAMPLE, 2, 12), seal(EXAMPLE, 3, 20), seal(EXAMPLE, 4, 30))
    yield told.push(200, X, seal(EXAMPLE, 1, 1)).tick(2_500)

    told = Story(
        "caught up in the past: authors below the frontier are not heard of before it is live",
        EXAMPLE,
        is_training=False,
    )
    first = [seal(EXAMPLE, 2, 6), seal(EXAMPLE, 3, 7), seal(EXAMPLE, 4, 8)]
    told.tick(0).join(10, X).push(20, X, *first)
    yield told.catch_up(30, X, ledger_of(EXAMPLE, [seal(EXAMPLE, 1, 4), *first])).tick(2_100)

    told = Story("a newcomer hears one far ahead before the others: meets all, and does not follow it", EXAMPLE)
    full = [seal(EXAMPLE, author, step) for author, step in ((1, 4), (2, 6), (3, 5), (4, 5), (5, 30))]
    told.tick(0).join(10, X).worker_ready(15).push(20, X, full[-1])
    yield told.catch_up(30, X, ledger_of(EXAMPLE, full)).tick(2_100)

    held = [seal(ROUNDS, 1, 0), seal(ROUNDS, 2, 0), seal(ROUNDS, 3, 300)]
    told = Story("a newcomer meets nobody more than 64 rounds behind", ROUNDS, held=held, is_training=False)
    told.tick(0).join(10, X).same(20, X, step=300).push(1_000, X, seal(ROUNDS, 4, 320))
    yield told.tick(2_100)

    told = Story("a relay has finished when it is live and most have done the last round", SHORT, is_training=False)
    told.tick(0).join(10, X).push(20, X, seal(SHORT, 1, 2), seal(SHORT, 2, 1)).same(30, X)
    yield told.push(40, X, seal(SHORT, 2, 2)).tick(90)

    told = Story("others have done the last round: the late one does that alone", SHORT)
    told.tick(0).join(10, X).same(20, X).push(100, X, seal(SHORT, 1, 2), seal(SHORT, 2, 2))
    yield told.worker_ready(200).estimated(500, 2).tick(550)


# --- 9.2: what it never signs


def _signing() -> Iterator[Story]:
    told = Story(
        "killed between reservation and estimate: the reserved round is never estimated", EXAMPLE, reserved_step=4
    )
    yield told.tick(0).worker_ready(10).estimated(500, 5)

    told = Story(
        "killed after it was stored: goes on after its highest step, too", EXAMPLE, reserved_step=4, held=[own(8)]
    )
    yield told.tick(0).worker_ready(10)

    yield _backup()

    told = Story("an own record comes while the worker measures: no second payload", EXAMPLE)
    told.tick(0).join(5, X).same(7, X).worker_ready(10).push(300, X, own(0, 77)).estimated(500, 0)
    yield told.tick(550)

    told = Story("an own later record comes while the worker measures: nothing at or below it is signed", EXAMPLE)
    told.tick(0).join(5, X).same(7, X).worker_ready(10).push(300, X, own(3, 77)).estimated(500, 0)
    yield told.tick(550)

    told = Story("nobody answers for 30 s: goes on with what its disk holds", EXAMPLE, expects_peers=True)
    told.tick(1_000).worker_ready(1_010).join(1_020, X).tell(
        1_030, X, head_of(ledger_of(EXAMPLE, [seal(EXAMPLE, 1, 0)]))
    )
    yield told.ticks(6_050, 11_050, 31_019, 31_020)

    yield _slow_catch_up()
    yield _late_records()

    told = Story("the last place in the author table goes while the worker measures: nothing is signed", CROWDED)
    told.tick(0).join(5, X).same(7, X).worker_ready(10).push(
        300, X, seal(CROWDED, 1, 0), seal(CROWDED, 2, 0)
    ).estimated(500, 0)
    yield told.push(600, X, seal(CROWDED, 3, 0)).ticks(700, 9_000)


def _backup() -> Story:
    """SPEC 9.2.3."""
    told = Story(
        "a restored backup: a neighbour tells of its own highest round first",
        EXAMPLE,
        expects_peers=True,
        reserved_step=2,
        held=[own(2)],
    )
    full = ledger_of(EXAMPLE, [own(step) for step in range(2, 7)] + [seal(EXAMPLE, 1, 5)])
    return told.tick(0).worker_ready(10).join(20, X).catch_up(30, X, full, step=5).estimated(900, 7)


def _slow_catch_up() -> Story:
    told = Story("a neighbour answers, slowly: 30 s do not run out while it does", EXAMPLE, expects_peers=True)
    full = ledger_of(EXAMPLE, [own(3), seal(EXAMPLE, 1, 5)])
    told.tick(0).worker_ready(10).join(20, X).tell(30, X, replace(head_of(full), step=5))
    for now_ms in range(9_000, 90_000, 9_000):
        if told.request(X) is None:
            break
        told.answer(now_ms, X, full, rounds=1)
        told.tick(now_ms + 100)
    return told


def _late_records() -> Story:
    """SPEC 9.2.3: they answer no request in flight."""
    told = Story("a neighbour sends records that nobody asked for: the 30 s run out", EXAMPLE, expects_peers=True)
    told.tick(0).worker_ready(10).join(20, X).tell(30, X, replace(head_of(ledger_of(EXAMPLE, [own(3)])), step=5))
    return told.tell(20_000, X, Records(request=77, data=seal(EXAMPLE, 1, 5))).ticks(30_019, 30_020)


# --- 9.1.5: paused by its operator


def _pausing() -> Iterator[Story]:
    told = Story("paused while it measures: that round counts, the next one begins when it goes on", EXAMPLE)
    told.tick(0).worker_ready(10).switch(20, is_on=False).estimated(500, 0).ticks(550, 2_000)
    yield told.switch(2_100, is_on=True)

    told = Story("paused: has finished when the others have done the last round", SHORT)
    told.tick(0).switch(5, is_on=False).worker_ready(10).join(20, X).same(30, X)
    yield told.push(40, X, *(seal(SHORT, 1, step) for step in range(3))).ticks(90)
