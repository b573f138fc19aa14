"""The data directory of one node in one run: the log of valid records, the step reservation, the known peers.

SQLite in WAL mode. Own updates and reservations are on the disk (fsync) before anything is sent. Records of others are
committed without waiting for the disk, because a power cut can only lose a tail that every peer still has. Everything
else (slots, digests, coefficients) is derived from the log at start.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from protocol.crypto import Author
from protocol.errors import OperatorError, StorageDamagedError
from protocol.ledger import STATEMENT_KEY_BYTES, StatementKind
from protocol.limits import STEPS_MAX
from protocol.run import SignedManifest
from sfnode.storage.data_directory import MANIFEST_FILE, DataDirectory
from sfnode.storage.disk import write_durably
from sfnode.storage.exclusive_folder import START_FILE
from sfnode.storage.stored_records import SLOT_INDEX, OfPeers, StoredRecords, damaged, sqlite_errors

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS records (arrival INTEGER PRIMARY KEY AUTOINCREMENT, record BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS {SLOT_INDEX} ON records (substr(record, 1, 8), substr(record, 33, 4));
CREATE TABLE IF NOT EXISTS statements (arrival INTEGER PRIMARY KEY AUTOINCREMENT, statement BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS statements_by_key ON statements (substr(statement, 1, {STATEMENT_KEY_BYTES}));
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_DELETE_LATER = f"""DELETE FROM statements WHERE substr(statement, 1, {STATEMENT_KEY_BYTES}) = ?
AND substr(statement, {STATEMENT_KEY_BYTES + 1}, 4) > ?"""


class Store(StoredRecords):
    """Reads and writes an open data directory. One process at a time can open it; ``close`` releases it."""

    def __init__(self, data_dir: DataDirectory, signed: SignedManifest) -> None:
        """Open a data directory for the run; create it if it does not exist. StorageDamagedError: it cannot be read.

        OperatorError: it belongs to another run, is in use, cannot be written, or the disk is full.
        """
        self._start_file = data_dir.path / START_FILE
        self._lock: int | None = data_dir.lock()
        try:
            data_dir.remove_killed_writes()
            data_dir.adopt(signed)
            super().__init__(_open_database(data_dir.ledger_file), data_dir.ledger_file)
            self._reserved_file = data_dir.reserved_file
            with sqlite_errors(self._path):
                self._database.executescript(_SCHEMA)
            self._check_run(signed)
        except BaseException:
            self._release()
            raise

    def close(self) -> None:
        """Flush and release the directory; closing twice is harmless."""
        try:
            self._database.close()
        finally:
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            with suppress(OSError):  # a daemon that lives on starts again from now on
                os.utime(self._start_file)
            os.close(self._lock)
            self._lock = None

    # --- records ------------------------------------------------------------------------------------------

    def add(self, records: Iterable[bytes], *, is_durable: bool) -> None:
        """Append records in one transaction; if ``is_durable``, wait until they are on the disk."""
        with self._transaction(is_durable=is_durable):
            self._database.executemany("INSERT INTO records (record) VALUES (?)", ((record,) for record in records))

    # --- statements ---------------------------------------------------------------------------------------

    def add_statements(self, statements: Sequence[bytes]) -> None:
        """Append statements in one transaction, and wait until they are on the disk.

        An exclusion takes the place of later ones of its author: the earliest counts, and the owner may sign many.
        """
        with self._transaction(is_durable=True):
            for statement in statements:
                if statement[0] == StatementKind.EXCLUDE:
                    key, rest = statement[:STATEMENT_KEY_BYTES], statement[STATEMENT_KEY_BYTES:]
                    self._database.execute(_DELETE_LATER, (key, rest[:4]))
                self._database.execute("INSERT INTO statements (statement) VALUES (?)", (statement,))

    # --- facts --------------------------------------------------------------------------------------------

    @property
    def reserved_step(self) -> int:
        """Return the highest step that this node may have signed; -1 if it never reserved one."""
        return max(self._reserved_in_database(), self._reserved_beside())

    @property
    def has_lost_records(self) -> bool:
        """Return whether this node may have signed steps of which the database knows nothing: it is new, or older."""
        return self._reserved_beside() > self._reserved_in_database()

    def reserve_step(self, step: int) -> None:
        """Record durably that ``step`` may be signed, and nothing before it ever again.

        A file of its own holds it, too: without it, a node that has lost its database would sign steps again
        that others have, and both updates of a slot are void.
        """
        self._set_fact("reserved_step", str(step), is_durable=True)
        write_durably(self._reserved_file, str(step).encode("ascii"))

    def _reserved_in_database(self) -> int:
        text = self.fact("reserved_step") or "-1"
        try:
            return int(text)
        except ValueError:
            raise damaged(self._path, f"reserved_step is {text[:40]!r}") from None

    def _reserved_beside(self) -> int:
        with suppress(OSError, ValueError):  # of an earlier release, or damaged itself
            return min(int(self._reserved_file.read_text("ascii")[:16]), STEPS_MAX)
        return -1

    def save(self, name: OfPeers, text: str) -> None:
        """Save a text of the network for the next start, if it has changed."""
        if text != self.saved(name):
            self._set_fact(name, text, is_durable=False)

    def save_author(self, author: bytes) -> None:
        """Save the author's key, so that the loss of the key file is noticed."""
        if self.fact("author") != author.hex():
            self._set_fact("author", author.hex(), is_durable=True)

    def hold_noise(self, author: Author, multiplier: float | None, data_sha256: str) -> float:
        """Save how much noise an author's messages have (None: none); return the least of any message, 0 for none.

        OperatorError: earlier messages had none or less, or were of other rows, so that nobody could state an epsilon.
        """
        held = self.fact("noise")
        if held is None:
            if multiplier is None:
                return 0.0
            if any(True for _ in self.read_all(author)):
                raise OperatorError(
                    "--noise: this node has sent messages without noise, and nobody can recall them. Join anew with "
                    "another --data-dir, or leave --noise out"
                )
            self._set_fact("noise", held := f"{multiplier!r} {data_sha256}", is_durable=True)
        least, data = held.split()
        if multiplier is None or multiplier < float(least):
            raise OperatorError(
                f"--noise: this node's epsilon counts on noise of {least} in all its messages. Start it with --noise "
                f"{least} or more, or join anew with another --data-dir"
            )
        if data != data_sha256:
            raise OperatorError(
                "--data: this node's epsilon counts how often each row was used, and the file has changed since. Give "
                "the file as it was, or join anew with another --data-dir"
            )
        return float(least)

    def _check_run(self, signed: SignedManifest) -> None:
        run_id = signed.manifest.run_id.hex()
        held = self.fact("run_id")
        if held is None:
            self._set_fact("run_id", run_id, is_durable=True)
        elif held != run_id:
            raise StorageDamagedError(
                f"{self._path} holds run {held[:16]}, but {MANIFEST_FILE} beside it is run "
                f"{run_id[:16]}: the directory was mixed from two. Restore it, or use another --data-dir"
            )

    def _set_fact(self, name: str, value: str, *, is_durable: bool) -> None:
        with self._transaction(is_durable=is_durable):
            self._database.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (name, value))

    # --- SQLite -------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, *, is_durable: bool) -> Iterator[None]:
        with sqlite_errors(self._path):
            self._database.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise


def _open_database(path: Path) -> sqlite3.Connection:
    with sqlite_errors(path):
        database = sqlite3.connect(path, isolation_level=None)
        try:
            database.execute("PRAGMA journal_mode = WAL")
        except BaseException:
            database.close()
            raise
        return database
