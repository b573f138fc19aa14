"""Who has contributed what, and when in the run: read from the ledger's bitmaps, so that no record is looked at."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from protocol import limits
from protocol.crypto import Author
from protocol.ledger import Ledger
from protocol.run import Manifest

CELLS: Final = 40  # of a picture of the run: a phone still has some pixels for each


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """One author's part.

    Attributes:
        updates: that count.
        void_slots: steps for which the author has signed two payloads.
        last_step: of the newest update that counts; -1: none does.
        excluded_from: first step that the owner has excluded; None: none.
        cells: the run in CELLS equal parts: of the steps in each part, the share that an update of theirs counts for,
            0...100.
    """

    author: Author
    updates: int
    void_slots: int
    last_step: int
    excluded_from: int | None
    cells: tuple[int, ...]


def contributions_to(ledger: Ledger, manifest: Manifest) -> list[Contribution]:
    """Of every author of whom anything is held, most updates first. Some microseconds for each author and span."""
    valid: dict[Author, int] = defaultdict(int)
    void: dict[Author, int] = defaultdict(int)
    for span in ledger.spans():
        for author in ledger.authors_in(span):
            held = ledger.holdings_of(span, author)
            valid[author] |= int.from_bytes(held.valid, "little") << span * limits.SPAN_STEPS
            void[author] += int.from_bytes(held.void, "little").bit_count()
    found = [
        Contribution(
            author=author,
            updates=steps.bit_count(),
            void_slots=void[author],
            last_step=steps.bit_length() - 1,
            excluded_from=ledger.roster.excluded_from(author),
            cells=_cells(steps, manifest),
        )
        for author, steps in valid.items()
    ]
    return sorted(found, key=lambda each: (-each.updates, each.author))


def _cells(steps: int, manifest: Manifest) -> tuple[int, ...]:
    """``steps``: a bitmap. An author has a slot in each round, that is in every ``local_steps``-th step."""
    bounds = [manifest.steps * number // CELLS for number in range(CELLS + 1)]
    return tuple(_share(steps, range(*ends), manifest.method.local_steps) for ends in pairwise(bounds))


def _share(steps: int, part: range, local_steps: int) -> int:
    """Per cent of the slots in a part of the run; in a short run a part may have none of its own."""
    slots = -(-len(part) // local_steps)
    held = steps >> part.start & (1 << len(part)) - 1
    return min(100, 100 * held.bit_count() // max(1, slots))
