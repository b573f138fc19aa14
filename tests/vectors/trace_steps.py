"""Traces of a node's own steps: when it starts one, whom it waits for, when it jumps, what it never signs (SPEC 9.1, 9.2)."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.run.manifest import Manifest
from tests.support.ledgers import ledger_of, seal
from tests.vectors.notation import Document
from tests.vectors.runs import EXAMPLE, record, run
from tests.vectors.trace_files import traces
from tests.vectors.trace_recorder import ME, Story, X, Y

SHORT = run({}, steps=3)
ROUNDS = run({"directions": 2, "local_steps": 4, "clip": 100}, steps=400)
_MANIFESTS = {"example": EXAMPLE, "short": SHORT, "rounds": ROUNDS}


def steps() -> Document:
    """traces_steps.json"""
    return traces("A node's own steps: SPEC 9.1, 9.2", _stories, _MANIFESTS)


def own(step: int, *scalars: int, manifest: Manifest = EXAMPLE) -> bytes:
    """A record that the node itself signed in a former life."""
    return record(manifest, step, *(scalars or (5,) * manifest.method.scalars), author=ME)


def _stories() -> Iterator[Story]:
    yield _alone()
    yield _two_neighbours()


def _alone() -> Story:
    told = Story("alone: trains from its first tick to the last step", SHORT)
    told.worker_ready(5).ticks(10).estimated(1_000, 0).tick(1_050).estimated(2_000, 1)
    return told.skipped(3_000, 2).ticks(3_250)


def _two_neighbours() -> Story:
    told = Story(
        "two neighbours: nothing is signed before it is live; an equal head makes it so", EXAMPLE, expects_peers=True
    )
    told.tick(0).worker_ready(10).join(20, X, Y).tick(70)
    told.same(100, X).estimated(1_000, 0).same(1_010, Y)
    told.push(1_100, X, seal(EXAMPLE, 1, 0)).tick(1_150)
    return told.tick(2_050)
