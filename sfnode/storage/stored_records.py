"""Reads the records in a node's database: in the order of arrival, and as the archive of a ledger (decision 0011).

SQLite's errors become an operator's words: what failed, where, and what to do.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from protocol.crypto import Author
from protocol.errors import Ignore, IgnoreReason, OperatorError, Reject, StorageDamagedError
from protocol.limits import SPAN_STEPS
from protocol.run import Manifest
from protocol.state import Replica

SLOT_INDEX = "records_by_slot"
_PAGE = "SELECT arrival, record FROM records WHERE arrival > ? ORDER BY arrival LIMIT 1024"
# The index holds the first 8 bytes of the author and the 4 bytes of the step (SPEC 6.1); `read` compares the rest.
_OF_AUTHOR = "SELECT record FROM records WHERE substr(record, 1, 8) = ?"
_OF_STEPS = f"{_OF_AUTHOR} AND substr(record, 33, 4) {{}} ORDER BY substr(record, 33, 4), arrival"
_LAST_STEP = "SELECT max(substr(record, 33, 4)) FROM records WHERE substr(record, 1, 8) = ?"
_AUTHOR, _STEP = slice(32), slice(32, 36)
OfPeers = Literal["known_peers", "discouraged", "names"]  # what is saved for the next start
_ROOM_BYTES = 1 << 16  # less is a full disk
_PIECE = 2_000  # records, replayed in a fifth of a second

_PERMISSIONS = "check the permissions of the file and its folder, or use another --data-dir"
# Errors that the operator can fix. All other errors of SQLite count as damage.
_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full. Free some space and start again; nothing that was stored is lost",
    sqlite3.SQLITE_IOERR: "the disk refused to read or write. Check its space and health, and start again",
    sqlite3.SQLITE_READONLY: _PERMISSIONS,
    sqlite3.SQLITE_CANTOPEN: _PERMISSIONS,
    sqlite3.SQLITE_PERM: _PERMISSIONS,
    sqlite3.SQLITE_BUSY: "another program has locked it. Close that one and start again",
    sqlite3.SQLITE_LOCKED: "another program has locked it. Close that one and start again",
}


class StoredRecords:
    """Reads the records that one connection sees. All methods raise StorageDamagedError."""

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
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

    def authors(self) -> list[bytes]:
        """Return the authors of all records, excluded ones included. Reads every record."""
        return self._select("SELECT DISTINCT substr(record, 1, 32) FROM records")

    def fact(self, name: str) -> str | None:
        """Return what the node has stored under a name; None: nothing."""
        with sqlite_errors(self._path):
            row = self._database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else None

    def saved(self, name: OfPeers) -> str:
        """Return what the network has saved under this name, JSON; "[]" at first."""
        return self.fact(name) or "[]"

    def replica(self, manifest: Manifest, report: Callable[[int], object] = lambda _count: None) -> Replica:
        """Return a replica of everything here, each statement and record checked. It reads from here later, too.

        ``report``: called now and then with the number of records so far.
        """
        replica = Replica(manifest, self)
        for count in self.replaying(replica):
            report(count)
        return replica

    def replaying(self, replica: Replica) -> Iterator[int]:
        """Pass all statements and records to ``replica``, which checks them.

        Yield the number of records so far after every 2,000, and at the end unless there are none.
        """
        replay_statements(replica, self.statements(), self._path)
        number = 0
        for number, row in enumerate(self.records(), start=1):
            replay(replica, (row,), self._path)
            if number % _PIECE == 0:
                yield number
        if number % _PIECE:
            yield number

    # --- archive: what a ledger need not keep in memory ---------------------------------------------------

    def read(self, author: Author, steps: Sequence[int]) -> list[bytes]:
        """Return an author's records of these ascending steps; see `protocol.ledger.Archive`."""
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
        with sqlite_errors(self._path):
            rows = self._database.execute(query, values).fetchall()
        if not all(isinstance(value, bytes) or value is None for (value,) in rows):
            raise self.damage("one of the records is not a record")
        return [value for (value,) in rows]


@contextmanager
def stored_records(path: Path) -> Iterator[StoredRecords]:
    """Yield the records of a database as they are at one moment, read-only; a daemon may use the database.

    OperatorError if no node has run there.
    """
    if not path.exists():
        raise OperatorError(f"{path.parent} holds no {path.name}: the node has not started yet")
    # Without a write-ahead log nobody writes. If the folder is read-only, SQLite must not try to write either.
    is_archive = not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
    with sqlite_errors(path):
        name = quote(os.fsencode(path))
        database = sqlite3.connect(f"file:{name}?{'immutable=1' if is_archive else 'mode=ro'}", uri=True)
    with closing(database):
        with sqlite_errors(path):
            database.execute("BEGIN")  # the first read fixes the moment
        yield StoredRecords(database, path)


def replay_statements(replica: Replica, statements: Iterable[bytes], path: Path) -> None:
    """Pass stored statements to ``replica``, before any record. StorageDamagedError if one is rejected."""
    for statement in statements:
        try:
            replica.add_statement(statement)
        except Reject as reject:
            raise damaged(path, f"a statement: {reject}") from None
        except Ignore:
            continue  # a later exclusion from an earlier step replaced it, or a crash left it twice


def replay(replica: Replica, records: Iterable[tuple[int, bytes]], path: Path) -> Replica:
    """Pass stored records to ``replica``, and return it. StorageDamagedError names the first that is rejected."""
    for arrival, record in records:
        try:
            _replay_one(replica, record)
        except Reject as reject:
            raise damaged(path, f"record {arrival}: {reject}") from None
    return replica


def _replay_one(replica: Replica, record: bytes) -> None:
    try:
        replica.add(record)
    except Ignore as ignore:  # excluded since, or stored twice by a crash between commit and memory
        if ignore.reason is IgnoreReason.NOT_ADMITTED:  # its author was admitted once: otherwise it would not be stored
            replica.suspend(record)


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours: OperatorError if the operator can fix them, otherwise StorageDamagedError."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        primary = code & 0xFF if isinstance(code, int) else None
        if primary == sqlite3.SQLITE_IOERR and shutil.disk_usage(path.parent).free < _ROOM_BYTES:
            primary = sqlite3.SQLITE_FULL  # it could not even make the file that readers share
        if primary in _ADVICE:
            raise OperatorError(f"cannot use {path} ({error}): {_ADVICE[primary]}") from None
        raise damaged(path, str(error)) from None
    except UnicodeDecodeError as error:
        raise damaged(path, str(error)) from None
    except MemoryError:  # SQLite reports lengths in some damaged pages as a lack of memory
        raise damaged(path, "or this machine is out of memory: SQLite could not read a page") from None


def damaged(path: Path, detail: str) -> StorageDamagedError:
    """Return the error for a damaged database at ``path``; it says what to do."""
    return StorageDamagedError(
        f"{path} is damaged ({detail}). Move it away and start again, while another node of the run is up: this one "
        "fetches the ledger anew. Move the -wal and -shm files along, and keep identity.key and all others"
    )
