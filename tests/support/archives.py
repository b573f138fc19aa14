"""What a store gives back to a ledger, without a disk: for tests, and for simulated machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from protocol.crypto.hashing import Author
from protocol.errors import StorageDamagedError


class MemoryArchive:
    """Records in the order in which they were stored. ``read_back`` counts those that were asked for again."""

    def __init__(self, records: Iterable[bytes] = ()) -> None:
        self.slots: dict[tuple[bytes, int], list[bytes]] = {}
        self.read_back = 0
        self.store(records)

    def store(self, records: Iterable[bytes]) -> None:
        """Append records."""
        for record in records:
            self.slots.setdefault((record[:32], int.from_bytes(record[32:36], "big")), []).append(record)

    def read(self, author: Author, steps: Sequence[int]) -> list[bytes]:
        """As of :class:`protocol.ledger.record_store.Archive`."""
        found = [record for step in steps for record in self.slots.get((author, step), ())]
        self.read_back += len(found)
        return found

    def read_all(self, author: Author) -> Iterator[bytes]:
        """As of :class:`protocol.ledger.record_store.Archive`."""
        yield from self.read(author, sorted(step for held, step in list(self.slots) if held == author))

    def damage(self, detail: str) -> StorageDamagedError:
        """As of :class:`protocol.ledger.record_store.Archive`."""
        return StorageDamagedError(f"the archive is damaged ({detail})")
