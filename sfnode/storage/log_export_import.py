"""A run as one file on disk, exported from a data directory or imported into one. No network, no torch.

The protocol defines the format.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from protocol.crypto import Signer
from protocol.documents import log_file
from protocol.errors import Ignore, IgnoreReason, OperatorError, OtherReleaseError, Reject
from protocol.ledger import Ledger
from protocol.run import Manifest, SignedManifest
from protocol.state import Replica
from sfnode.storage.data_directory import END_FILE, LEDGER_FILE, MANIFEST_FILE, STAGED, DataDirectory
from sfnode.storage.disk import opened_file, os_errors, read_bytes, sync_folder, write_new
from sfnode.storage.exclusive_folder import LOCK_FILE, START_FILE
from sfnode.storage.key_file import IDENTITY_FILE
from sfnode.storage.record_store import Store
from sfnode.storage.stored_basis import read_bases

LogProgress = Callable[[int, int], None]  # bytes of the file done so far, updates held so far
# What a new data directory may contain already: a key that is to be kept, what a start left, and what a volume has.
_MAY_LIE_THERE = frozenset({IDENTITY_FILE, LOCK_FILE, START_FILE, END_FILE, "lost+found"})
_STAGED_FILES = (MANIFEST_FILE, LEDGER_FILE, "basis", LOCK_FILE)  # and additional files of SQLite


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSummary:
    """Holds what a data directory and its log file contain.

    Attributes:
        records: in the file, both of each void slot.
        added: the records that were new to the directory.
        suspended: those of them that count only once their authors are admitted by name, since others use their
            invitations; of an export, such records that are left out.
        no_room: the records for which the directory's author table has no room (SPEC 7.3).
        updates, void_slots, ledger_root, state_digest: of the directory afterwards; digests in hex.
        writer: hex of the key that signed the whole file.
    """

    data_dir: str
    records: int
    added: int
    suspended: int
    no_room: int
    updates: int
    void_slots: int
    ledger_root: str
    state_digest: str
    writer: str


def export_log(data_dir: DataDirectory, path: Path, writer: Signer, report: LogProgress) -> LogSummary:
    """Write the run in a data directory to ``path``; a daemon may be using it. Every record is verified first.

    OperatorError: no data directory, no basis in it, ``path`` exists or cannot be written. StorageDamagedError.
    """
    signed = data_dir.signed_manifest()
    manifest = signed.manifest
    held = data_dir.basis.find(manifest)
    read_bases(manifest, held)
    basis = read_bytes(held, "the basis") if held else None
    with data_dir.reading() as stored:
        replica = stored.replica(manifest, partial(report, 0))
        replica.coefficients()
        pieces = log_file.encode_log(signed, basis, replica, writer)
        write_new(path, _counted(pieces, replica, report))
        records = replica.ledger.updates + 2 * replica.ledger.void_slots
        return _summary(
            data_dir, replica, records=records, writer=writer.author.hex(), counts={"suspended": replica.suspended}
        )


def _counted(pieces: Iterable[bytes], replica: Replica, report: LogProgress) -> Iterator[bytes]:
    done = 0
    for piece in pieces:
        done += len(piece)
        report(done, replica.ledger.updates)
        yield piece


def import_log(path: Path, choose_directory: Callable[[Manifest], DataDirectory], report: LogProgress) -> LogSummary:
    """Verify the whole file; then make a data directory of it, or add it to an existing one of the same run.

    A new directory, whose place ``choose_directory`` returns, appears complete, by one rename; additions are made in
    one transaction. So a directory always holds what it held before, or all of it.

    OperatorError: the file is not a log, damaged or forged (the byte is named); the directory belongs to another run,
    is in use, or cannot be written. StorageDamagedError: the directory's own ledger is damaged.
    """
    with opened_file(path, "the log file") as file:
        reader = log_file.LogReader(file.read, report)
        with _faults_of(path):
            signed = reader.manifest_untrusted()
        target = choose_directory(signed.manifest)
        with os_errors(f"use the data directory {target}"):
            _check_target(target, signed)
        with _staging(target, signed) as staged:
            with _faults_of(path):
                loaded = reader.rest_untrusted(signed, staged.store)
            return _create(loaded, staged, target) if staged.is_new else _merge(loaded, target, report)


@contextmanager
def _faults_of(path: Path) -> Iterator[None]:
    """Turn what is wrong with a log file into an OperatorError."""
    try:
        with os_errors(f"read the log file {path}"):
            yield
    except OtherReleaseError as error:
        raise OperatorError(
            f"log file {path} was made with another release of sfnode: {error.detail}. Use that one, or make the run "
            "anew. Nothing was changed"
        ) from None
    except Reject as reject:
        raise OperatorError(
            f"log file {path}, {reject.detail}. Nothing was changed. Get the file again from where it was made"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Staged:
    """Holds the place of the records while a file is read: a data directory in the making.

    ``is_new``: it becomes the target; otherwise its new records are added to the existing one.
    """

    data_dir: DataDirectory
    store: Store
    is_new: bool


@contextmanager
def _staging(target: DataDirectory, signed: SignedManifest) -> Iterator[_Staged]:
    """Make a temporary data directory: next to a new directory, so that one rename suffices, or in an existing one."""
    is_new = not target.path.exists()  # an empty folder may be a mount point or a link, which no rename replaces
    if not is_new:
        target.claim()
    parent, name = (target.path.absolute().parent, target.path.name) if is_new else (target.path, "")
    with os_errors(f"make a folder in {parent}"):
        parent.mkdir(parents=True, exist_ok=True)
        _clear_staged(name, parent)
        data_dir = DataDirectory(Path(tempfile.mkdtemp(prefix=f"{name}.import-", dir=parent)))
    try:
        with closing(Store(data_dir, signed)) as store:
            yield _Staged(data_dir=data_dir, store=store, is_new=is_new)
    finally:
        with suppress(OSError):  # it has been renamed, unless something went wrong
            shutil.rmtree(data_dir)


def _check_target(target: DataDirectory, signed: SignedManifest) -> None:
    """Raise OperatorError if the log cannot go there, before the long part."""
    if not target.path.exists():
        return
    if not target.path.is_dir():
        raise OperatorError(f"{target} is a file: choose another --data-dir")
    if target.manifest_file.exists():
        target.check_run(signed)
    elif strange := sorted(entry.name for entry in target.path.iterdir() if entry.name not in _MAY_LIE_THERE):
        raise OperatorError(f"{target} is not a data directory, and it holds {strange[0]!r}: choose another --data-dir")


def _create(loaded: log_file.LoadedLog, staged: _Staged, target: DataDirectory) -> LogSummary:
    """Complete the temporary directory, and rename it to its final name."""
    added = {"added": loaded.records}
    summary = _summary(target, loaded.replica, records=loaded.records, writer=loaded.writer.hex(), counts=added)
    with os_errors(f"make {target}"):
        _keep_basis(loaded, staged.data_dir)
        staged.store.add_statements(loaded.replica.ledger.roster.statements())
        staged.store.close()
        sync_folder(staged.data_dir.path)
        os.replace(staged.data_dir, target)
        sync_folder(target.path.absolute().parent)
    return summary


def _clear_staged(name: str, parent: Path) -> None:
    """Remove the leftovers of killed imports into the folder ``name`` of ``parent``. OSError."""
    for path in parent.iterdir():
        is_named_so = path.name.startswith(name) and STAGED.fullmatch(path.name.removeprefix(name))
        if not is_named_so or path.is_symlink() or not path.is_dir() or DataDirectory(path).is_locked():
            continue  # locked: another import is running
        if all(entry.name.startswith(_STAGED_FILES) for entry in path.iterdir()):
            shutil.rmtree(path)


def _merge(loaded: log_file.LoadedLog, data_dir: DataDirectory, report: LogProgress) -> LogSummary:
    with closing(Store(data_dir, loaded.signed)) as store:
        _keep_basis(loaded, data_dir)
        replica = store.replica(loaded.signed.manifest, partial(report, 0))
        counts = merge_ledger(loaded.replica.ledger, store, replica)
        return _summary(data_dir, replica, records=loaded.records, writer=loaded.writer.hex(), counts=counts)


def merge_ledger(ledger: Ledger, store: Store, replica: Replica) -> dict[str, int]:
    """Store the statements and records of ``ledger`` that are new to ``replica``, which holds those of ``store``.

    Keep the records of authors who are not admitted any more, too, as a node does: the owner may admit them by name.

    Return how many records were added, how many of these are suspended, and for how many there was no room.
    """
    statements: list[bytes] = []
    for statement in ledger.roster.statements():
        with suppress(Ignore):
            replica.add_statement(statement)
            statements.append(statement)
    store.add_statements(statements)
    counts = {"added": 0, "suspended": 0, "no_room": 0}
    store.add(_news(ledger, store, replica, counts), is_durable=True)
    return counts


def _news(file: Ledger, store: Store, replica: Replica, counts: dict[str, int]) -> Iterator[bytes]:
    """Yield the file's records that are new to ``replica``, and add or suspend each; count as `merge_ledger` says."""
    for record in file.slots.ordered_records():
        try:
            replica.add(record)
        except Ignore as ignore:
            counts["no_room"] += ignore.reason is IgnoreReason.AUTHORS_FULL
            named = file.codec.decode_untrusted(record)
            if ignore.reason is not IgnoreReason.NOT_ADMITTED or record in store.read(named.author, [named.step]):
                continue
            replica.suspend(record)
            counts["suspended"] += 1
        counts["added"] += 1
        yield record


def _keep_basis(loaded: log_file.LoadedLog, data_dir: DataDirectory) -> None:
    if loaded.basis is not None:
        data_dir.basis.store(loaded.signed.manifest, loaded.basis, origin="the log's basis")


def _summary(
    data_dir: DataDirectory, replica: Replica, *, records: int, writer: str, counts: Mapping[str, int]
) -> LogSummary:
    return LogSummary(
        data_dir=str(data_dir),
        records=records,
        **{"added": 0, "suspended": 0, "no_room": 0, **counts},
        updates=replica.ledger.updates,
        void_slots=replica.ledger.void_slots,
        ledger_root=replica.ledger.root().hex(),
        state_digest=replica.state_digest().hex(),
        writer=writer,
    )
