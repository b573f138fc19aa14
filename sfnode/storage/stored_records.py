"""Reads the records in a node's database: in the order of arrival, and as the archive of a ledger (decision 0011)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from protocol.crypto import Author
from protocol.errors import StorageDamagedError
from protocol.ledger import Archive
from protocol.limits import SPAN_STEPS
from sfnode.storage.sqlite_errors import damaged, sqlite_errors

SLOT_INDEX = "records_by_slot"
_HAS_INDEX = "SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = ?"
_PAGE = "SELECT arrival, record FROM records WHERE arrival > ? ORDER BY arrival LIMIT 1024"
# The index holds the first 8 bytes of the author and the 4 bytes of the step (SPEC 6.1); `read` compares the rest.
_OF_AUTHOR = "SELECT record FROM records WHERE substr(record, 1, 8) = ?"
_OF_STEPS = f"{_OF_AUTHOR} AND substr(record, 33, 4) {{}} ORDER BY substr(record, 33, 4), arrival"
_LAST_STEP = "SELECT max(substr(record, 33, 4)) FROM records WHERE substr(record, 1, 8) = ?"
_AUTHOR, _STEP = slice(32), slice(32, 36)


class StoredRecords:
    """Reads the records that one connection sees. All methods raise StorageDamagedError."""

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        """Take a connection, and the database's path for the texts of errors."""
        self._database = database
        self._path = path

    def records(self, *, after: int = -1) -> Iterator[tuple[int, bytes]]:
        """Yield (arrival number, record) in the order of arrival, after arrival ``after``.

        No cursor stays open between pages: the caller may stop half-way and close the database.
        """
        last = after
        while True:
            with sqlite_errors(self._path):
                page = self._database.execute(_PAGE, (last,)).fetchall()
            if not page:
                return
            for arrival, record in page:
                if not isinstance(record, bytes) or not isinstance(arrival, int) or arrival <= last:
                    raise self.damage(f"after record {last} comes something that is not a record")
                last = arrival
                yield arrival, record

    def count(self) -> int:
        """Count the records; reads the whole index."""
        with sqlite_errors(self._path):
            return int(self._database.execute("SELECT count(*) FROM records").fetchone()[0])

    def statements(self) -> list[bytes]:
        """Return all statements, in the order of arrival."""
        with sqlite_errors(self._path):
            rows = self._database.execute("SELECT statement FROM statements ORDER BY arrival").fetchall()
        if not all(isinstance(statement, bytes) for (statement,) in rows):
            raise self.damage("one of the statements is not a statement")
        return [statement for (statement,) in rows]

    # --- archive: what a ledger need not keep in memory ---------------------------------------------------

    @property
    def archive(self) -> Archive | None:
        """Return this database as a ledger's archive; None if an earlier release left it without the index."""
        with sqlite_errors(self._path):
            found = self._database.execute(_HAS_INDEX, (SLOT_INDEX,)).fetchone()
        return self if found else None

    def read(self, author: Author, steps: Sequence[int]) -> list[bytes]:
        """Return an author's records of these ascending steps; see :class:`protocol.ledger.record_store.Archive`."""
        if not steps:
            return []
        wanted = [step.to_bytes(4, "big") for step in steps]
        # Close steps: read a range, and drop the others. Scattered steps: name each.
        is_dense = steps[-1] - steps[0] < 2 * len(steps)
        if is_dense:
            rows = self._select(_OF_STEPS.format("BETWEEN ? AND ?"), author[:8], wanted[0], wanted[-1])
        else:
            rows = self._select(_OF_STEPS.format(f"IN ({','.join('?' * len(wanted))})"), author[:8], *wanted)
        chosen = frozenset(wanted)
        return [row for row in rows if row[_AUTHOR] == author and row[_STEP] in chosen]

    def read_all(self, author: Author) -> Iterator[bytes]:
        """Yield all records of one author, by step."""
        (last,) = self._select(_LAST_STEP, author[:8])
        for start in range(0, int.from_bytes(last, "big") + 1 if last else 0, SPAN_STEPS):
            yield from self.read(author, range(start, start + SPAN_STEPS))

    def damage(self, detail: str) -> StorageDamagedError:
        """Return the error for a damaged database; it says what to do."""
        return damaged(self._path, detail)

    def _select(self, query: str, *values: bytes) -> list[bytes]:
        """Return the values of a query with a single column."""
        with sqlite_errors(self._path):
            rows = self._database.execute(query, values).fetchall()
        if not all(isinstance(value, bytes) or value is None for (value,) in rows):
            raise self.damage("one of the records is not a record")
        return [value for (value,) in rows]
