"""Traces of the horizon (SPEC 7.3.3): which steps lie too far ahead, of what is pushed and of what is pulled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from protocol.run.manifest import Manifest
from tests.support.ledgers import ledger_of, seal
from tests.vectors.notation import Document
from tests.vectors.runs import run
from tests.vectors.trace_files import traces
from tests.vectors.trace_recorder import Story, X, Y, Z, head_of

LONG = run({"rank": 2, "epoch_steps": 512, "clip": 99}, steps=2_000)
ROUNDS = run({"rank": 2, "epoch_steps": 512, "clip": 99, "local_steps": 4}, steps=2_048)
_MANIFESTS = {"long": LONG, "rounds": ROUNDS}


def horizon() -> Document:
    """traces_horizon.json"""
    return traces("The horizon: SPEC 7.3.3", _stories, _MANIFESTS)


def _stories() -> Iterator[Story]:
    yield from _pushed()
    yield from _pulled()
    yield from _one_goes_on()
    yield from _of_one_neighbour()
    yield _followed("what a session brings moves the horizon: another follows", 10, 74, 138, 203)
    yield _followed("spans wholly beyond the horizon are not looked at", 950, 1_000, 1_030, 1_500)
    yield _followed("a session moves the horizon by 32 rounds: another follows", 10, 42, 500)
    yield _followed("a session moves the horizon by 31 rounds: none follows", 10, 41, 500)
    rounds = "a session moves the horizon by 31 rounds of four steps: none follows"
    yield _followed(rounds, 40, 164, 500, manifest=ROUNDS)

    full = ledger_of(LONG, [seal(LONG, 1, 9)])
    told = relay("pulled: a slot beyond the session's horizon, which was not asked for, is too early")
    told.tell(2_000, X, head_of(full)).until_pull(4_000, X, full)
    yield told.pulled(4_010, X, seal(LONG, 1, 9), seal(LONG, 2, 64), seal(LONG, 2, 65)).tick(4_060)


def relay(name: str, *, held: tuple[bytes, ...] = (), step: int = 0, manifest: Manifest = LONG, **config: Any) -> Story:
    """A live relay with a neighbour that is at ``step``."""
    told = Story(name, manifest, held=held, is_training=False, **config).tick(0).join(10, X)
    return told.same(20, X, step=step)


def _pushed() -> Iterator[Story]:
    told = relay("pushed: 64 rounds beyond the frontier, and no further", held=(seal(LONG, 1, 100), seal(LONG, 2, 120)))
    yield told.push(100, X, seal(LONG, 1, 165), seal(LONG, 1, 164)).tick(150)

    told = Story("pushed, in rounds of four steps", ROUNDS, held=[seal(ROUNDS, 1, 100)], is_training=False)
    yield told.tick(0).join(10, X).same(20, X).push(100, X, seal(ROUNDS, 1, 360), seal(ROUNDS, 1, 356))

    told = Story("pushed: 64 rounds beyond the own next step", LONG, held=[seal(LONG, 9, 100, 1)], reserved_step=199)
    yield told.tick(0).join(10, X).same(20, X).push(100, X, seal(LONG, 1, 265), seal(LONG, 1, 264))

    told = relay("pushed: 64 rounds beyond the lower median of the neighbours' steps, which one liar does not move")
    told.join(30, Y, Z).same(40, Y, step=300).same(50, Z, step=1_900)
    yield told.push(100, Z, seal(LONG, 1, 365), seal(LONG, 1, 364)).push(110, Z, seal(LONG, 1, 1_000))

    told = relay(
        "pushed: a second payload of a slot that is held lies nowhere too early",
        held=(seal(LONG, 1, 500), seal(LONG, 2, 7)),
    )
    yield told.push(100, X, seal(LONG, 1, 500, 77)).push(110, X, seal(LONG, 2, 600))

    told = Story("not live: nothing is too early", LONG, is_training=False)
    yield told.tick(0).join(10, X).push(100, X, seal(LONG, 1, 1_999))


def _pulled() -> Iterator[Story]:
    far = [seal(LONG, 1, step) for step in (900, 1_014, 1_015)]
    told = relay("pulled: 64 rounds beyond the step of that neighbour; what lies beyond is not asked for")
    ahead = replace(head_of(ledger_of(LONG, far)), step=950)
    told.tell(2_000, X, ahead).tell(4_000, X, ahead)
    yield told.answer(4_010, X, ledger_of(LONG, far)).push(4_100, X, seal(LONG, 2, 1_500))

    told = relay("pulled: of a neighbour that is behind, 64 rounds beyond the frontier", held=(seal(LONG, 1, 100),))
    full = ledger_of(LONG, [seal(LONG, 1, 100), seal(LONG, 2, 164), seal(LONG, 2, 165)])
    told.tell(2_000, X, head_of(full, step=50))
    yield told.catch_up(4_000, X, full, step=50)

    left = [seal(LONG, author, 10) for author in (1, 2, 3)]
    last = [seal(LONG, 4, 100)]
    more = [seal(LONG, 4, 164), seal(LONG, 4, 165)]
    told = relay(
        "pulled, all silent for 60 s: 64 rounds beyond the highest step held of any other author", held=(*left, *last)
    )
    full = ledger_of(LONG, [*left, *last, *more])
    told.tell(2_000, X, head_of(full, step=9))
    yield told.catch_up(4_000, X, full, step=9)

    told = relay("pulled, one heard of within 60 s: the highest step held does not count", held=(*left, *last))
    told.push(1_000, X, seal(LONG, 5, 20)).tell(2_000, X, head_of(full, step=9))
    yield told.catch_up(4_000, X, full, step=9)

    told = Story("a session that began before the node was live has no horizon", LONG, is_training=False)
    told.tick(0).join(10, X, Y).until_pull(30, X, ledger_of(LONG, far)).same(40, Y)
    yield told.answer(50, X, ledger_of(LONG, far))


def _followed(name: str, held: int, *steps: int, manifest: Manifest = LONG) -> Story:
    """A machine that slept: each session moves the horizon, but for the last one."""
    told = relay(name, held=(seal(manifest, 1, held),), manifest=manifest)
    full = ledger_of(manifest, [seal(manifest, 1, step) for step in (held, *steps)])
    told.tell(2_000, X, head_of(full, step=9)).catch_up(4_000, X, full, step=9)
    for now_ms in (4_050, 4_100):
        told.tick(now_ms).answer(now_ms, X, full)
    return told.tick(4_150)


def _one_goes_on() -> Iterator[Story]:
    """The frontier is that of all met, and the horizon that of the one who is heard of."""
    held = tuple(seal(LONG, author, 10) for author in (1, 2, 3))
    told = relay("pushed, most are silent: 64 rounds beyond those heard of within 60 s", held=held)
    yield told.push(100, X, seal(LONG, 4, 74)).push(200, X, seal(LONG, 4, 139), seal(LONG, 4, 138)).tick(2_100)

    held = tuple(seal(LONG, author, 100) for author in (1, 2, 3))
    full = ledger_of(LONG, [*held, *(seal(LONG, 4, step) for step in (20, 84, 85))])
    told = relay("pulled, most are silent and further: 64 rounds beyond those heard of within 60 s", held=held)
    told.push(100, X, seal(LONG, 4, 20)).tell(2_000, X, head_of(full, step=9))
    yield told.catch_up(4_000, X, full, step=9)


def _of_one_neighbour() -> Iterator[Story]:
    held = (seal(LONG, 1, 10),)
    full = ledger_of(LONG, [*held, seal(LONG, 2, 74), seal(LONG, 2, 75)])
    told = relay("pulled: the steps of other neighbours do not count", held=held).join(30, Y, Z)
    told.same(40, Y, step=300).same(50, Z, step=300).tell(2_000, X, head_of(full, step=9))
    yield told.catch_up(4_000, X, full, step=9)

    told = relay("pushed while a session is under way: the session's horizon does not count").join(30, Y, Z)
    ahead = replace(head_of(full), step=950)
    told.same(40, Y, step=9).same(50, Z, step=9).tell(2_000, X, ahead).tell(4_000, X, ahead)
    yield told.push(4_010, X, seal(LONG, 2, 75)).push(4_020, X, seal(LONG, 2, 73))
