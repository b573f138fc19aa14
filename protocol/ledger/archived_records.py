"""Where a ledger leaves the records that it need not keep in memory, and how it recognises them later (decision 0011).

An archive only gives back what its owner stored; the ledger never writes to it. The ledger forgets a record only once
the archive has given it back, and checks every record that it reads later.
"""

from array import array
from binascii import crc32
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from protocol import limits
from protocol.crypto import KEY_BYTES, SIGNATURE_BYTES, Author
from protocol.errors import StorageDamagedError

# A slot with one record counts; one with two different payloads is void and keeps the pair as its proof.
Slot = bytes | tuple[bytes, bytes]

_MODULUS = 1 << 32  # of the sums
_STEP = slice(KEY_BYTES, KEY_BYTES + 4)


class Archive(Protocol):
    """Gives back every record that was stored, whether it still counts or not."""

    def read(self, author: Author, steps: Sequence[int]) -> list[bytes]:
        """Return the records of one author of these ascending steps; within a step by arrival, copies included."""

    def read_all(self, author: Author) -> Iterator[bytes]:
        """Yield all records of one author; those of one step in the order of arrival, copies included."""

    def damage(self, detail: str) -> StorageDamagedError:
        """Return the error to raise when stored records are not given back; it says what, where, and what to do."""


class ReadBack:
    """Holds an archive and, until any slot changes, the group that was read back last.

    A record for an old slot needs the group three times: to look at the slot, to compare the two and to hash anew.
    """

    __slots__ = ("archive", "group", "slots")

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.group: tuple[Author, int] | None = None  # whose, and its first step
        self.slots: dict[int, Slot] = {}  # by offset, as checked


class Checks:
    """Keeps checksums of one bucket's slots, to see whether slots that are read back have changed.

    They guard against bad disks and accidents. They need not stop deliberate changes, which signatures do.
    """

    __slots__ = ("_sums",)

    def __init__(self) -> None:
        self._sums = array("I")  # of each group up to the last one that was needed: a quarter of a byte for each slot

    def add(self, offset: int, record: bytes) -> None:
        """Add a record that came into the slot."""
        self._change(offset, crc32(record))

    def remove(self, offset: int, slot: Slot) -> None:
        """Subtract the records of a slot that is empty again."""
        self._change(offset, -sum(map(crc32, records_of(slot))))

    def fits(self, group: range, slots: dict[int, Slot]) -> bool:
        """Return whether ``slots`` contain exactly the records held in ``group``."""
        found = sum(crc32(record) for offset in group if offset in slots for record in records_of(slots[offset]))
        return self._sums[group.start // limits.GROUP_STEPS] == found % _MODULUS

    def _change(self, offset: int, amount: int) -> None:
        group = offset // limits.GROUP_STEPS
        self._sums.extend([0] * (group + 1 - len(self._sums)))
        self._sums[group] = (self._sums[group] + amount) % _MODULUS


def group_of(offset: int) -> range:
    """Return the slots that are hashed and checked together with the one at ``offset``."""
    start = offset - offset % limits.GROUP_STEPS
    return range(start, start + limits.GROUP_STEPS)


def records_of(slot: Slot) -> tuple[bytes, ...]:
    """Return the one record of a slot that counts, or both records of a void slot."""
    return slot if isinstance(slot, tuple) else (slot,)


def slots_in(records: Iterable[bytes]) -> dict[int, Slot]:
    """Return by offset the slots that an author's records in one span fill; two different payloads make one void."""
    slots: dict[int, Slot] = {}
    for record in records:
        offset = step_of(record) % limits.SPAN_STEPS
        held = slots.get(offset)
        if held is None:
            slots[offset] = record
        elif isinstance(held, bytes) and held[:-SIGNATURE_BYTES] != record[:-SIGNATURE_BYTES]:
            slots[offset] = (held, record)
    return slots


def step_of(record: bytes) -> int:
    """Return the step of a record's round (SPEC 6.1)."""
    return int.from_bytes(record[_STEP], "big")
