"""Stories of how many directions a node measures (SPEC 9.1.6), by its own times and by those of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.support.ledgers import seal
from tests.vectors.runs import dense_run, record, run
from tests.vectors.trace_recorder import ME, Story, X

SLICED = run({"directions": 8, "shares": 2, "local_steps": 2, "clip": 100}, steps=400)
DENSE = dense_run({}, steps=400)
_ROUND, _DIRECTIONS = 2, 8


def stories_of_directions() -> Iterator[Story]:
    """All of them, on the run ``SLICED``: D = 8, blocks of 2, rounds of 2 steps."""
    told = _told("a quarter slower than another author: all directions", 1_250, 1_250)
    yield told.ticks(2_600)

    yield _told("slower than that: still all directions", 1_252).ticks(2_300)
    yield _told("slower than that in two rounds: as many as it can in the other's interval", 1_252, 1_252).ticks(3_600)
    yield _told("slower than that now and then: all directions", 1_252, 1_250, 1_252).ticks(4_900)
    yield _told("four times as slow: still all directions", 4_000).ticks(4_100)
    yield _told("slower than four times: fewer at once", 4_004).ticks(4_100)
    yield _told("a hundred times slower: one block", 100_000).ticks(101_000)
    yield _told("another author measures half: all of them would take it twice as long", 8_000, measured=4).ticks(8_100)
    yield _told("another author's last block begins with a scalar that is not zero", 5_900, measured=5).ticks(6_000)
    yield _told("and has another one, which may be zero", 5_300, measured=5).ticks(5_400)
    yield _told("another author has sent nothing but zeros: all were measured", 4_100, measured=0).ticks(4_200)

    told = Story("another author heard of once: no interval is known, all directions", SLICED).tick(0).join(5, X)
    yield told.same(6, X).worker_ready(10).push(500, X, _update(1, 0)).estimated(4_000, 0).ticks(4_100)

    told = Story("no own time is known, after a skipped round and a lost one: all directions", SLICED).tick(0)
    told.join(5, X).same(6, X).worker_ready(10).push(500, X, _update(1, 0)).push(1_000, X, _update(1, 2))
    told.skipped(4_000, 0).lost(9_000, 2).worker_ready(9_100)
    yield told.tick(9_200)

    yield _of_several()
    yield _ahead_of_time()
    yield _inactive()
    yield _more_and_less()
    yield _skipped_between()
    yield _newest()
    yield _unsigned()
    yield _dense()
    yield _told("fewer, and then as fast as another author: more", 4_004, 1_000).ticks(5_100)


def _update(author: int, step: int, measured: int = _DIRECTIONS) -> bytes:
    """An update whose second local step tells how many directions were measured; the first is shorter."""
    first, second = [1 if measured else 0] + [0] * 7, [0] * _DIRECTIONS
    second[:measured] = [0] * (measured - 1) + [-3] * bool(measured)
    return seal(SLICED, author, step, *first, *second)


def _told(name: str, *took_ms: int, measured: int = _DIRECTIONS) -> Story:
    """Another author sends an update a second; the first own rounds take ``took_ms``."""
    told = Story(name, SLICED).tick(0).join(5, X).same(6, X).worker_ready(10)
    told.push(10, X, _update(1, 0, measured)).push(1_010, X, _update(1, 2, measured))
    end_ms = 10
    for number, each_ms in enumerate(took_ms):
        end_ms += each_ms
        told.estimated(end_ms, _ROUND * number)
    return told


def _of_several() -> Story:
    """Intervals of 1, 2, 3 and 9 seconds, the third by half of the directions: 1, 2, 6, 9; with its own 10: 6."""
    told = Story("of several authors and itself: the lower median of what all directions take them", SLICED)
    told.tick(0).join(5, X).same(6, X).worker_ready(10)
    told.push(10, X, *(_update(author, 0, 4 if author == 3 else 8) for author in (1, 2, 3, 4)))
    for author, interval_ms in ((1, 1_000), (2, 2_000), (3, 3_000), (4, 9_000)):
        told.push(10 + interval_ms, X, _update(author, 2, 4 if author == 3 else 8))
    return told.estimated(10_010, 0).estimated(20_010, 2).ticks(20_100)


def _ahead_of_time() -> Story:
    """Steps 40, 42 and 44 within 20 ms, where it and another author are at 0: more than eight rounds ahead."""
    told = Story("an author who signs far ahead does not count", SLICED).tick(0).join(5, X).same(6, X)
    told.worker_ready(10).push(15, X, _update(2, 0)).push(20, X, _update(1, 40)).push(30, X, _update(1, 42)).push(
        40, X, _update(1, 44)
    )
    return told.estimated(1_010, 0).ticks(1_100)


def _inactive() -> Story:
    """Three quick authors are further than two rounds behind what is needed: two slow ones are active."""
    told = Story("authors who are not active do not count", SLICED, reserved_step=20).tick(0).join(5, X).same(6, X)
    told.worker_ready(10)
    for now_ms, step in ((100, 0), (300, 2)):
        told.push(now_ms, X, *(_update(author, step) for author in (1, 2, 5)))
    for now_ms, step in ((1_000, 22), (5_000, 24)):
        told.push(now_ms, X, _update(3, step), _update(4, step))
    return told.estimated(8_010, 22).ticks(8_100)


def _more_and_less() -> Story:
    """Another author sends an update every 1.5 s; own rounds take so long, whatever they measure."""
    told = Story("fewer after rounds that took too long, more after one that did not", SLICED).tick(0)
    told.join(5, X).same(6, X).worker_ready(10)
    pushed = 0
    for took_ms in (3_000, 3_000, 1_600, 1_450, 1_300, 7_000, 1_300, 2_000, 1_300, 700, 7_000, 100):
        step, end_ms = told.node.clock.next_step, told.now_ms + took_ms
        while (due_ms := 10 + 1_500 * pushed) < end_ms:
            told.push(due_ms, X, _update(1, _ROUND * pushed))
            pushed += 1
        told.estimated(end_ms, step)
    return told


def _skipped_between() -> Story:
    """The long round was looked at once; after the one that is skipped nothing is known that is new."""
    told = Story("a skipped round changes nothing", SLICED).tick(0).join(5, X).same(6, X).worker_ready(10)
    told.push(10, X, _update(1, 0)).push(1_010, X, _update(1, 2)).estimated(2_010, 0)
    return told.skipped(2_500, 2).ticks(2_600)


def _newest() -> Story:
    """Of the newest update of an author: it measures half at first, then all, then a quarter."""
    told = Story("another author measures more, then less: its newest update says how many", SLICED).tick(0)
    told.join(5, X).same(6, X).worker_ready(10)
    rounds: Sequence[tuple[int, int]] = ((10, 4), (1_010, 4), (2_010, 8), (3_010, 2))
    for number, (now_ms, measured) in enumerate(rounds):
        told.push(now_ms, X, _update(1, _ROUND * number, measured))
    return told.estimated(8_200, 0).ticks(8_300)


def _unsigned() -> Story:
    """A later record of its own comes while it measures."""
    told = Story("a round that is measured and not signed counts", SLICED).tick(0).join(5, X).same(6, X)
    told.worker_ready(10).push(10, X, _update(1, 0)).push(1_010, X, _update(1, 2))
    told.push(2_000, X, record(SLICED, 0, *[9] * 16, author=ME))
    return told.estimated(4_014, 0).ticks(4_100)


def _dense() -> Story:
    """Another author sends the mean of two of four rows a second: all four would take it two."""
    told = Story("dense cores: fewer rows after a step that took too long, then more", DENSE).tick(0).join(5, X)
    told.same(6, X).worker_ready(10)
    for step in (0, 1):
        told.push(10 + 1_000 * step, X, seal(DENSE, 1, step, 2, *[step - 9] * 8))
    told.estimated(8_200, 0, 4, *range(-3, 5)).ticks(8_300).push(8_310, X, seal(DENSE, 1, 0, 3, *[5] * 8))
    return told.estimated(8_600, 1, 1, *[0] * 7, 50).ticks(8_700, 10_700)
