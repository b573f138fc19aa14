"""Traces of the end of a run (SPEC 9.6): work distances, what holds them back, and when the run is over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.ledgers import ledger_of, seal
from tests.vectors.notation import Document
from tests.vectors.runs import record, run
from tests.vectors.trace_apart import FEW, WIDE, full_tables
from tests.vectors.trace_files import traces
from tests.vectors.trace_recorder import ME, Story, X, Y, head_of

ONE = run({}, steps=1)
TWO = run({}, steps=2)
FIVE = run({}, steps=5)
_MANIFESTS = {"one": ONE, "two": TWO, "five": FIVE, "few": FEW, "wide": WIDE}


def end() -> Document:
    """traces_end.json"""
    return traces("The end of a run: SPEC 9.6", _stories, _MANIFESTS)


def _stories() -> Iterator[Story]:
    yield from _distances()
    yield from _over()
    yield from _awaited()
    yield from _given_up()
    yield _own_key()
    yield from _further()
    yield from full_tables()


def finished(name: str, **config: Any) -> Story:
    """A node that has done its only step, with two neighbours who hold it, too."""
    told = Story(name, ONE, **config).tick(0).worker_ready(0).estimated(5, 0).join(10, X, Y)
    return told.same(20, X).same(20, Y)


def _distances() -> Iterator[Story]:
    told = finished("the distance is one more than the nearest neighbour's, and told at most every 100 ms")
    told.ticks(120, 170).same(200, X, work_distance=5).same(210, Y, work_distance=4).ticks(260, 320)
    yield told.same(400, Y, work_distance=9).tick(450)

    told = finished("at sixteen it is over")
    told.same(100, X, work_distance=15).same(110, Y, work_distance=14).ticks(220)
    yield told.same(300, Y, work_distance=15).ticks(350)

    told = Story("a node with steps to make says zero", TWO)
    yield told.tick(0).join(10, X).worker_ready(20).same(30, X, work_distance=16).tick(150)

    told = Story(
        "a relay that waits for others to finish: the run is not over at sixteen",
        TWO,
        held=[seal(TWO, 1, 0)],
        is_training=False,
    )
    yield told.tick(0).join(10, X).same(20, X, work_distance=16).tick(200)

    told = Story("while it catches up it says zero", ONE, is_training=False)
    other = ledger_of(ONE, [seal(ONE, 1, 0)])
    yield told.tick(0).join(10, X).tell(20, X, head_of(other, work_distance=9)).tick(200).catch_up(2_100, X, other)


def _over() -> Iterator[Story]:
    told = finished("a neighbour's head has another root: the distance does not rise, and falls", expects_peers=False)
    told.same(100, X, work_distance=8).same(110, Y, work_distance=8).tick(220)
    told.tell(300, X, head_of(ledger_of(ONE, []), work_distance=9)).tick(400)
    told.same(500, Y, work_distance=12).tick(600).same(700, Y, work_distance=3).tick(800)
    yield told.same(900, X, work_distance=16).tick(1_000)

    told = finished("a newcomer who has told no head holds the run open")
    told.same(100, X, work_distance=16).same(110, Y, work_distance=16).leave(150, X).join(160, X)
    yield told.tick(220).same(300, X, work_distance=16)

    told = finished("all neighbours leave with its own root: over")
    yield told.leave(100, X).leave(110, Y).tick(150)

    told = (
        Story("all neighbours leave, none with its own root: not over", ONE)
        .tick(0)
        .worker_ready(0)
        .estimated(5, 0)
        .join(10, X)
    )
    yield told.tell(20, X, head_of(ledger_of(ONE, []))).leave(100, X).tick(150)

    told = finished("a neighbour left with the root; then a record came: it is not equal any more")
    told.leave(100, X).push(200, Y, seal(ONE, 1, 0)).leave(300, Y)
    yield told.tick(350)


def _awaited() -> Iterator[Story]:
    told = Story(
        "an author at work whose last round is missing is awaited for four of its intervals", TWO, is_training=False
    )
    told.tick(0).join(10, X).same(20, X).push(
        1_000, X, seal(TWO, 1, 0), seal(TWO, 2, 1), seal(TWO, 3, 1), seal(TWO, 4, 1)
    )
    told.same(2_000, X, work_distance=16).tick(2_050)
    told.same(120_999, X, work_distance=16).tick(121_000)
    yield told.tick(121_001).same(121_010, X, work_distance=16)

    yield _interval("quick authors are awaited for 5 s", 300, 5_000)
    yield _interval("an author heard of once counts with the longest interval of any", 2_000, 8_000)
    yield _interval("slow authors are awaited for 15 min", 300_000, 900_000)

    told = Story("its last round comes: nobody is awaited any more", TWO, is_training=False)
    told.tick(0).join(10, X).same(20, X).push(1_000, X, seal(TWO, 1, 0), seal(TWO, 2, 1), seal(TWO, 3, 1))
    told.same(2_000, X, work_distance=16).push(3_000, X, seal(TWO, 1, 1))
    yield told.same(3_100, X, work_distance=16).tick(3_150)


def _interval(name: str, interval_ms: int, patience_ms: int) -> Story:
    """Author 1 is heard of twice, author 2 once; all others have done the last round."""
    told = Story(name, FIVE, is_training=False).tick(0).join(10, X).same(20, X)
    told.push(1_000, X, seal(FIVE, 1, 0), *(seal(FIVE, author, 4) for author in (3, 4, 5, 6)))
    heard_ms = 1_000 + interval_ms
    told.push(heard_ms, X, seal(FIVE, 1, 1), seal(FIVE, 2, 1)).same(heard_ms + 10, X, work_distance=16)
    return told.tick(heard_ms + patience_ms).tick(heard_ms + patience_ms + 1)


def _own_key() -> Story:
    told = Story("its own key, which trained elsewhere before, is not awaited", TWO, is_training=False)
    told.tick(0).join(10, X).same(20, X).push(1_000, X, record(TWO, 0, 5, author=ME), seal(TWO, 1, 1))
    return told.same(1_100, X, work_distance=16).tick(1_150)


def _given_up() -> Iterator[Story]:
    told = finished("a neighbour lies for ever: after half an hour it may leave all the same")
    told.tick(30).tell(100_000, X, head_of(ledger_of(ONE, []), work_distance=9)).tick(1_000_000)
    yield told.ticks(1_800_019, 1_800_020)

    told = Story("it expected a neighbour, and none came: after 30 s it may leave", ONE, expects_peers=True)
    told.ticks(0, 30_000).worker_ready(30_010).estimated(30_100, 0)
    yield told.ticks(30_150, 60_149, 60_150)


def _further() -> Iterator[Story]:
    """Stand last: the names of what the others hold stay."""
    told = finished("reports of the distance lie 100 ms apart, to the millisecond").tick(120)
    yield told.same(200, X, work_distance=5).same(210, Y, work_distance=4).ticks(219, 220)

    name = "an author heard of once, two others twice: the longer of their intervals"
    told = Story(name, FIVE, is_training=False).tick(0).join(10, X).same(20, X)
    told.push(1_000, X, seal(FIVE, 1, 0), seal(FIVE, 7, 0), *(seal(FIVE, author, 4) for author in (3, 4, 5, 6)))
    told.push(1_500, X, seal(FIVE, 7, 1)).push(4_000, X, seal(FIVE, 1, 1)).push(10_000, X, seal(FIVE, 2, 1))
    yield told.same(10_010, X, work_distance=16).ticks(22_000, 22_001)

    told = Story("paused and finished, then it trains once more: half an hour begins anew", TWO).tick(0).worker_ready(0)
    told.switch(3, is_on=False).estimated(5, 0).join(10, X).same(20, X).push(40, X, seal(TWO, 1, 1)).tick(50)
    told.tell(100, X, head_of(ledger_of(TWO, []), work_distance=9)).switch(1_000_000, is_on=True)
    yield told.tick(1_000_050).estimated(1_000_100, 1).ticks(1_000_150, 1_800_200, 2_800_149, 2_800_150)

    name = "its last round is done, and no neighbour answers: 30 s of silence, then half an hour"
    told = Story(name, ONE, held=[record(ONE, 0, 5, author=ME)], reserved_step=0).tick(0).join(10, X)
    told.tell(20, X, head_of(ledger_of(ONE, []), work_distance=9)).ticks(30_009, 30_010)
    yield told.ticks(1_830_009, 1_830_010)

    told = Story("a relay that is not live has finished once its only neighbour has left", TWO, is_training=False)
    told.tick(0).join(10, X).push(20, X, seal(TWO, 1, 1)).tick(70).leave(80, X).ticks(130, 30_129, 30_130)
    yield told.join(40_000, X).tick(40_050)

    name = "a record that makes a slot void is not heard of: its author is not awaited"
    told = Story(name, TWO, held=[seal(TWO, 1, 0), seal(TWO, 2, 1)], is_training=False).tick(0).join(10, X)
    yield told.same(20, X).push(1_000, X, seal(TWO, 1, 0, 77)).same(1_010, X, work_distance=16).tick(1_110)
