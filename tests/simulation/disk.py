"""A simulated disk with the promises and the weaknesses of the real store, an SQLite database with a write-ahead log.

Transactions are frames with a checksum, appended in order. What was synced survives a power cut; of the rest a prefix
does, the last frame perhaps in part. Frames move into the main file now and then, which has no checksums: a flipped bit
there shows only when the records are verified again.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator

from protocol.errors import StorageDamagedError

_HEADER = struct.Struct(">BII")  # kind, length, CRC-32 of kind and body
_RECORDS, _RESERVATION, _STATEMENT = 0, 1, 2
_CHECKPOINT_BYTES = 4_096


class Disk:
    """Bytes that outlive a process, and how much of them is sure to outlive a power cut."""

    def __init__(self, record_bytes: int) -> None:
        self._record_bytes = record_bytes
        self._bytes = bytearray()
        self._synced = 0
        self._main = 0  # up to here frames lie in the main file
        self._written: list[bytes] = []  # records that wait for the disk
        self._promised: set[bytes] = set()  # durable ones
        self._promised_step = -1  # durable reservation
        self.reserved_step = -1
        self.statements: list[bytes] = []  # found at the last start
        self.has_forgotten = False  # at the last start something durable was missing

    @property
    def unsynced(self) -> int:
        """Bytes that a power cut may take."""
        return len(self._bytes) - self._synced

    @property
    def size(self) -> int:
        """Bytes in all."""
        return len(self._bytes)

    def store(self, records: tuple[bytes, ...], *, is_durable: bool) -> None:
        """Append one transaction of records; durable ones wait for the disk, and take all before them along."""
        self._append(_RECORDS, b"".join(records))
        self._written.extend(records)
        if is_durable:
            self._sync()

    def reserve(self, step: int) -> None:
        """Make a reservation durable."""
        self._append(_RESERVATION, step.to_bytes(4, "big"))
        self.reserved_step = step
        self._sync()

    def state(self, statements: tuple[bytes, ...]) -> None:
        """Make statements of the owner durable."""
        for statement in statements:
            self._append(_STATEMENT, statement)
        self._sync()

    def cut_power(self, chosen: random.Random, *, is_torn: bool) -> None:
        """Lose a part of what was not synced; where ``is_torn``, the write at the edge is half done."""
        kept = self._synced + (chosen.randrange(self.unsynced) if self.unsynced else 0)
        if not is_torn:
            kept = max((end for _, _, end in self._frames() if end <= kept), default=0)
            kept = max(kept, self._synced)
        del self._bytes[kept:]
        if is_torn:
            self._bytes += chosen.randbytes(chosen.randrange(1, 40))

    def flip_bit(self, chosen: random.Random) -> None:
        """One bit somewhere is another."""
        self._bytes[chosen.randrange(len(self._bytes))] ^= 1 << chosen.randrange(8)

    def restore_backup(self, chosen: random.Random) -> None:
        """The whole disk is as it was at some earlier time: records and reservations since then are gone."""
        ends = [0, *(end for _, _, end in self._frames())]
        del self._bytes[chosen.choice(ends[:-1]) :]
        self._synced = len(self._bytes)
        self._main = min(self._main, self._synced)

    def wipe(self) -> None:
        """The operator moved the damaged file away."""
        self._bytes.clear()
        self._synced = self._main = 0
        self.reserved_step = -1
        self.statements = []
        self._compare_with_promised([])

    def recover(self) -> list[bytes]:
        """What a process finds at its start: all records in order; ``reserved_step`` and ``statements`` are set.

        Raises StorageDamagedError where the main file cannot be read. A log is used up to the first frame that does
        not match its checksum, like SQLite's.
        """
        records: list[bytes] = []
        self.statements = []
        reserved_step = -1
        end = 0
        for kind, body, frame_end in self._frames():
            end = frame_end
            if kind == _RECORDS:
                size = self._record_bytes
                records += [body[start : start + size] for start in range(0, len(body), size)]
            elif kind == _STATEMENT:
                self.statements.append(body)
            else:
                reserved_step = int.from_bytes(body, "big")
        if end < self._main:
            raise StorageDamagedError("the main file of the simulated disk cannot be read")
        del self._bytes[end:]
        self._synced = len(self._bytes)
        self.reserved_step = reserved_step
        self._compare_with_promised(records)
        return records

    def _compare_with_promised(self, records: list[bytes]) -> None:
        """Whether all that was durable was found; what was found is durable from now on."""
        is_whole = self._promised.issubset(records) and self.reserved_step >= self._promised_step
        self.has_forgotten = not is_whole
        self._written = []
        self._promised = set(records)
        self._promised_step = self.reserved_step

    def _append(self, kind: int, body: bytes) -> None:
        self._bytes += _HEADER.pack(kind, len(body), _checksum(kind, body)) + body

    def _sync(self) -> None:
        self._synced = len(self._bytes)
        self._promised.update(self._written)
        self._promised_step = self.reserved_step
        self._written = []
        if self._synced - self._main > _CHECKPOINT_BYTES:
            self._main = self._synced

    def _frames(self) -> Iterator[tuple[int, bytes, int]]:
        """(kind, body, end) of each whole frame from the start; in the log only while checksums match."""
        start = 0
        while start + _HEADER.size <= len(self._bytes):
            kind, length, checksum = _HEADER.unpack_from(self._bytes, start)
            end = start + _HEADER.size + length
            body = bytes(self._bytes[start + _HEADER.size : end])
            is_checked = start < self._main or _checksum(kind, body) == checksum
            if end > len(self._bytes) or kind > _STATEMENT or not is_checked:
                return
            yield kind, body, end
            start = end


def _checksum(kind: int, body: bytes) -> int:
    return zlib.crc32(body, kind)
