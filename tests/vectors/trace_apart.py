"""Traces of neighbours that are apart for good: author tables full of different authors (SPEC 8.4.8, 9.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocol.run.manifest import Manifest
from tests.support.ledgers import exclude, ledger_of, seal
from tests.vectors.runs import run
from tests.vectors.trace_recorder import Story, X, Y, head_of

FEW = run({}, steps=1, authors_max=2)
WIDE = run({}, steps=200, authors_max=2)


def full_tables() -> Iterator[Story]:
    """The stories; each node is a relay whose table is full of authors 1 and 2."""
    strange = ledger_of(FEW, [seal(FEW, author, 0) for author in (3, 4)])
    over = head_of(strange, work_distance=16)

    told = _full("full author tables of different authors: apart, until either root changes")
    told.catch_up(30, X, strange).tell(2_030, X, over).tell(4_030, X, over).tick(4_050)
    told.push(5_000, X, seal(FEW, 1, 0, 77)).tell(6_030, X, over).tell(8_030, X, over).answer(8_030, X, strange)
    told.tell(10_030, X, over).tick(10_050)
    more = ledger_of(FEW, [*(seal(FEW, author, 0) for author in (3, 4)), seal(FEW, 3, 0, 77)])
    over_with_more = head_of(more, work_distance=16)
    told.tell(12_030, X, over_with_more).tick(12_050).tell(14_030, X, over_with_more).answer(14_030, X, more)
    yield told.tell(16_030, X, over_with_more).leave(17_000, X).tick(17_050)

    told = _full("apart from one that leaves: over without neighbours").catch_up(30, X, strange)
    yield told.tell(2_030, X, head_of(strange)).leave(2_040, X).tick(2_050)

    voided = ledger_of(FEW, [seal(FEW, 1, 0), seal(FEW, 1, 0, 77), seal(FEW, 3, 0)])
    told = _full("a session that failed leaves nobody apart").until_pull(30, X, voided).pulled(40, X)
    yield told.tell(2_050, X, head_of(voided, work_distance=16))

    told = _full("nor does one that skipped something").join(15, Y).until_pull(30, X, voided).catch_up(40, Y, voided)
    yield told.tell(1_050, Y, head_of(voided, work_distance=16))

    told = _full("nor does an author who is excluded here", statements=(exclude(FEW, 3, 0),))
    stranger = ledger_of(FEW, [seal(FEW, 3, 0)])
    yield told.catch_up(30, X, stranger).tell(2_030, X, head_of(stranger, work_distance=16))

    told = _full("nor does one that found something beyond the horizon", WIDE).same(20, X)
    far = ledger_of(WIDE, [seal(WIDE, 1, 0), seal(WIDE, 1, 100), seal(WIDE, 3, 0)])
    told.tell(2_030, X, head_of(far)).catch_up(4_030, X, far)
    yield told.tell(6_030, X, head_of(far)).tell(8_030, X, head_of(far))


def _full(name: str, manifest: Manifest = FEW, **config: Any) -> Story:
    held = [seal(manifest, author, 0) for author in (1, 2)]
    return Story(name, manifest, held=held, is_training=False, **config).tick(0).join(10, X)
