"""The data directory of one node in one run: the log of valid records, the step reservation, the known peers.

SQLite in WAL mode. Own updates and reservations are on the disk (fsync) before anything is sent. Records of others are
committed without waiting for the disk, because a power cut can only lose a tail that every peer still has. Everything
else (slots, digests, coefficients) is derived from the log at start.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from protocol.errors import Ignore, IgnoreReason, OperatorError, Reject, StorageDamagedError
from protocol.run import Manifest, SignedManifest, decode_run_untrusted
from protocol.state import Replica
from sfnode.storage.files import describe_os_error, read_bytes, write_durably
from sfnode.storage.private_folder import claim_folder
from sfnode.storage.sqlite_errors import damaged, sqlite_errors
from sfnode.storage.stored_records import SLOT_INDEX, StoredRecords

MANIFEST_FILE = "manifest.run"
LEDGER_FILE = "ledger.sqlite3"
LOCK_FILE = "lock"
STATUS_FILE = "status.json"
NODE_FILE = "node.toml"

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS records (arrival INTEGER PRIMARY KEY AUTOINCREMENT, record BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS {SLOT_INDEX} ON records (substr(record, 1, 8), substr(record, 33, 4));
CREATE TABLE IF NOT EXISTS statements (arrival INTEGER PRIMARY KEY AUTOINCREMENT, statement BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


class Store(StoredRecords):
    """Reads and writes an open data directory. One process at a time can open it; ``close`` releases it."""

    def __init__(self, directory: Path, signed: SignedManifest) -> None:
        """Open ``directory`` for the run; create it if it does not exist.

        Raises:
            OperatorError: it belongs to another run, is in use, cannot be written, or the disk is full.
            StorageDamagedError: the database is not readable.
        """
        self.directory = directory
        self._lock: int | None = _take_lock(directory)
        try:
            _adopt_manifest(directory, signed)
            super().__init__(_open_database(directory / LEDGER_FILE), directory / LEDGER_FILE)
            with self._guarded():
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
            os.close(self._lock)
            self._lock = None

    # --- records ------------------------------------------------------------------------------------------

    def add(self, records: Iterable[bytes], *, is_durable: bool) -> None:
        """Append records in one transaction; if ``is_durable``, wait until they are on the disk."""
        with self._transaction(is_durable=is_durable):
            self._database.executemany("INSERT INTO records (record) VALUES (?)", ((record,) for record in records))

    # --- statements ---------------------------------------------------------------------------------------

    def add_statements(self, statements: Sequence[bytes]) -> None:
        """Append statements in one transaction, and wait until they are on the disk."""
        rows = [(statement,) for statement in statements]
        with self._transaction(is_durable=True):
            self._database.executemany("INSERT INTO statements (statement) VALUES (?)", rows)

    # --- facts --------------------------------------------------------------------------------------------

    @property
    def reserved_step(self) -> int:
        """Return the highest step that this node may have signed; -1 if it never reserved one."""
        text = self._fact("reserved_step") or "-1"
        try:
            return int(text)
        except ValueError:
            raise damaged(self.directory / LEDGER_FILE, f"reserved_step is {text[:40]!r}") from None

    def reserve_step(self, step: int) -> None:
        """Record durably that ``step`` may be signed, and nothing before it ever again."""
        self._set_fact("reserved_step", str(step), is_durable=True)

    @property
    def known_peers(self) -> str:
        """Return the address book as it was saved last, JSON; "[]" at first."""
        return self._fact("known_peers") or "[]"

    def save_known_peers(self, rows: str) -> None:
        """Save the address book for the next start."""
        self._set_fact("known_peers", rows, is_durable=False)

    @property
    def bootstraps(self) -> str:
        """Return the bootstraps that earlier lives reached, JSON; "[]" at first."""
        return self._fact("bootstraps") or "[]"

    def save_bootstraps(self, texts: str) -> None:
        """Save the bootstraps for the next start."""
        self._set_fact("bootstraps", texts, is_durable=False)

    @property
    def discouraged(self) -> str:
        """Return the peers that are not wanted, as they were saved last, JSON; "[]" at first."""
        return self._fact("discouraged") or "[]"

    def save_discouraged(self, rows: str) -> None:
        """Save the peers that are not wanted for the next start."""
        self._set_fact("discouraged", rows, is_durable=False)

    def save_author(self, author: bytes) -> None:
        """Save the author's key, so that the loss of the key file is noticed."""
        if self._fact("author") != author.hex():
            self._set_fact("author", author.hex(), is_durable=True)

    def _check_run(self, signed: SignedManifest) -> None:
        run_id = signed.manifest.run_id.hex()
        held = self._fact("run_id")
        if held is None:
            self._set_fact("run_id", run_id, is_durable=True)
        elif held != run_id:
            raise StorageDamagedError(
                f"{self.directory / LEDGER_FILE} holds run {held[:16]}, but {MANIFEST_FILE} beside it is run "
                f"{run_id[:16]}: the directory was mixed from two. Restore it, or use another --data-dir"
            )

    def _fact(self, name: str) -> str | None:
        with self._guarded():
            row = self._database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else None

    def _set_fact(self, name: str, value: str, *, is_durable: bool) -> None:
        with self._transaction(is_durable=is_durable):
            self._database.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (name, value))

    # --- SQLite -------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, *, is_durable: bool) -> Iterator[None]:
        with self._guarded():
            self._database.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        with sqlite_errors(self.directory / LEDGER_FILE):
            yield


def read_manifest(directory: Path) -> SignedManifest:
    """Return the signed manifest of a data directory, for commands that only read. OperatorError."""
    path = directory / MANIFEST_FILE
    if not path.exists():
        raise OperatorError(f"{directory} is not a node's data directory: it has no {MANIFEST_FILE}")
    return decode_run_file(path)


def decode_run_file(path: Path) -> SignedManifest:
    """Read and check a ``.run`` file; OperatorError says what is wrong with it."""
    try:
        return decode_run_untrusted(read_bytes(path, "the run file"))
    except Reject as reject:
        raise OperatorError(f"run file {path}: {reject.detail}") from None


@contextmanager
def replayed(directory: Path, manifest: Manifest) -> Iterator[Replica]:
    """Yield the replica of a data directory, read-only, so that a daemon may use the directory.

    The replica reads from the directory what it does not keep in memory, so it cannot be used after the block.
    OperatorError if no node has run there; StorageDamagedError.
    """
    with replayed_with_records(directory, manifest) as (replica, _):
        yield replica


@contextmanager
def replayed_with_records(directory: Path, manifest: Manifest) -> Iterator[tuple[Replica, StoredRecords]]:
    """Yield the replica of a data directory and all its stored records, even those that no longer count.

    Read-only, with the errors of `replayed`.
    """
    with reading(directory) as stored:
        yield replay_all(Replica(manifest, stored.archive), stored, directory), stored


def replay_all(replica: Replica, stored: StoredRecords, directory: Path) -> Replica:
    """Pass the statements and records of a data directory to ``replica``, which checks them. StorageDamagedError."""
    path = directory / LEDGER_FILE
    replay_statements(replica, stored.statements(), path)
    return replay(replica, stored.records(), path)


def read_records(directory: Path, *, after: int = -1) -> Iterator[tuple[int, bytes]]:
    """Yield (arrival number, record) of a data directory after arrival ``after``; a daemon may use the directory."""
    with _reading(directory) as database:
        yield from StoredRecords(database, directory / LEDGER_FILE).records(after=after)


@contextmanager
def reading(directory: Path) -> Iterator[StoredRecords]:
    """Yield the records of a data directory as they are at one moment, read-only; a daemon may use the directory.

    OperatorError if no node has run there.
    """
    with _reading(directory) as database:
        with sqlite_errors(directory / LEDGER_FILE):
            database.execute("BEGIN")  # the first read fixes the moment
        yield StoredRecords(database, directory / LEDGER_FILE)


def read_known_peers(directory: Path) -> str:
    """Return the address book of a data directory as it was saved last, JSON; read-only."""
    with _reading(directory) as database, sqlite_errors(directory / LEDGER_FILE):
        row = database.execute("SELECT value FROM facts WHERE name = 'known_peers'").fetchone()
    return str(row[0]) if row else "[]"


def read_author(directory: Path) -> str | None:
    """Return the public key, in hex, of the node that ran on a data directory; None if none did.

    Empty if a node of an earlier release, which did not save its key's name, measured steps there.
    """
    if not (directory / LEDGER_FILE).exists():
        return None
    with _reading(directory) as database, sqlite_errors(directory / LEDGER_FILE):
        facts = dict(database.execute("SELECT name, value FROM facts WHERE name IN ('author', 'reserved_step')"))
    return facts.get("author", "" if "reserved_step" in facts else None)


def read_statements(directory: Path) -> list[bytes]:
    """Return the statements of a data directory in the order of arrival; read-only."""
    with _reading(directory) as database:
        return StoredRecords(database, directory / LEDGER_FILE).statements()


@contextmanager
def _reading(directory: Path) -> Iterator[sqlite3.Connection]:
    path = directory / LEDGER_FILE
    if not path.exists():
        raise OperatorError(f"{directory} holds no {LEDGER_FILE}: the node has not started yet")
    # Without a write-ahead log nobody writes. If the folder is read-only, SQLite must not try to write either.
    is_archive = not os.access(directory, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
    with sqlite_errors(path):
        database = sqlite3.connect(f"file:{quote(str(path))}?{'immutable=1' if is_archive else 'mode=ro'}", uri=True)
    try:
        yield database
    finally:
        database.close()


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


def _take_lock(directory: Path) -> int:
    claim_folder(directory)
    try:
        # Anybody who can open the file, even to read, can lock it. So the folder and the file are closed to others.
        descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise OperatorError(f"cannot use the data directory {directory}: {describe_os_error(error)}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise OperatorError(
            f"the data directory {directory} is in use by another sfnode. Stop that one, or use another --data-dir"
        ) from None
    return descriptor


def is_locked(directory: Path) -> bool:
    """Return whether a daemon holds the directory now."""
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _adopt_manifest(directory: Path, signed: SignedManifest) -> None:
    path = directory / MANIFEST_FILE
    if not path.exists():
        write_durably(path, signed.encode())
        return
    held = decode_run_file(path).manifest
    if held.run_id != signed.manifest.run_id:
        raise OperatorError(
            f"the data directory {directory} belongs to run {held.name!r} ({held.run_id.hex()[:16]}), not to "
            f"{signed.manifest.name!r} ({signed.manifest.run_id.hex()[:16]}). Use another --data-dir"
        )


def _open_database(path: Path) -> sqlite3.Connection:
    with sqlite_errors(path):
        database = sqlite3.connect(path, isolation_level=None)
        try:
            database.execute("PRAGMA journal_mode = WAL")
        except BaseException:
            database.close()
            raise
        return database
