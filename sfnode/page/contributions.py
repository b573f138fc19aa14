"""Compute each author's share of a run over time from the ledger's bitmaps, without reading a record."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from protocol import limits
from protocol.crypto import Author
from protocol.ledger import Ledger
from protocol.run import Manifest

CELLS = 40  # parts of the drawn run: a phone still has some pixels for each


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """Holds one author's contribution to a run.

    Attributes:
        updates: number of valid updates.
        void_slots: steps for which the author has signed two payloads.
        last_step: step of the newest valid update; -1 if there is none.
        excluded_from: first step that the owner has excluded; None if the author is not excluded.
        cells: for each of CELLS equal parts of the run, the percentage of the author's slots with a valid update,
            0...100.
    """

    author: Author
    updates: int
    void_slots: int
    last_step: int
    excluded_from: int | None
    cells: tuple[int, ...]


def contributions_to(ledger: Ledger, manifest: Manifest) -> list[Contribution]:
    """Return the contribution of every author in the ledger, most updates first. Microseconds per author and span."""
    valid: dict[Author, int] = defaultdict(int)
    void: dict[Author, int] = defaultdict(int)
    for span in ledger.slots.spans():
        for author in ledger.slots.authors_in(span):
            held = ledger.slots.holdings_of(span, author)
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
    """Return `Contribution.cells`. ``steps`` is a bitmap; an author has one slot in every ``local_steps`` steps."""
    cells: list[int] = []
    for start, end in pairwise(manifest.steps * number // CELLS for number in range(CELLS + 1)):
        slots = -(-(end - start) // manifest.method.local_steps)  # rounded up; a part of a short run may have no slot
        held = steps >> start & (1 << (end - start)) - 1
        cells.append(min(100, 100 * held.bit_count() // max(1, slots)))
    return tuple(cells)
