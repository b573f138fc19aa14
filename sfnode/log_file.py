"""A run as one file on disk, out of a data directory and into one. No network, no torch; the format: protocol."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from protocol.errors import Ignore, IgnoreReason, OperatorError, Reject
from protocol.hashing import Digest
from protocol.keys import Signer
from protocol.log_file import LoadedLog, encode_log, load_log_untrusted
from protocol.manifest import Manifest
from protocol.method import BasisKind
from protocol.replica import Replica
from sfnode.basis_file import basis_in, basis_path, read_bases, renewals_for, store_basis
from sfnode.files import describe_os_error, read_bytes, sync_folder, write_pieces_durably
from sfnode.identity import FILE_NAME
from sfnode.store import (
    LEDGER_FILE,
    LOCK_FILE,
    MANIFEST_FILE,
    Store,
    is_locked,
    read_manifest,
    read_records,
    read_statements,
    replay,
    replay_statements,
)

Tell = Callable[[int, int], None]  # bytes of the file done so far, updates held so far
_TOLD_RECORDS: Final = 2_000
_AGAIN: Final = "Get the file again from where it was made"
# What may lie in a folder that is to become a data directory: a key that is to go on signing, and the lock beside it.
_MAY_LIE_THERE: Final = frozenset({FILE_NAME, LOCK_FILE})
_STAGED: Final = re.compile(r"\.import-[a-z0-9_]{8}")  # what mkdtemp appends to the directory's name
_STAGED_FILES: Final = (
    MANIFEST_FILE,
    LEDGER_FILE,
    "basis",
    LOCK_FILE,
)  # and what SQLite puts beside


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSummary:
    """What a data directory and its file hold.

    Attributes:
        directory: the data directory.
        records: in the file; both of each void slot.
        added: of them that were new to the directory.
        no_room: of them that the directory's author table has no place for (SPEC 7.3).
        updates, void_slots, ledger_root, state_digest: of the directory afterwards.
        writer: hex of the key that answers for the file's being whole.
    """

    directory: Path
    records: int
    added: int
    no_room: int
    updates: int
    void_slots: int
    ledger_root: Digest
    state_digest: Digest
    writer: str


def export_log(directory: Path, path: Path, writer: Signer, tell: Tell) -> LogSummary:
    """Write the run in ``directory`` to ``path``; a daemon may be running on it. Every record is verified first.

    Raises:
        OperatorError: no data directory, no basis in it, ``path`` exists or cannot be written.
        StorageDamagedError: the ledger is damaged.
    """
    if path.exists():
        raise OperatorError(f"{path} exists: choose another name, or delete it first")
    signed = read_manifest(directory)
    manifest = signed.manifest
    held = basis_in(directory, manifest)
    read_bases(manifest, held)
    basis = read_bytes(held, "the basis") if held else None
    replica = Replica(manifest)
    replay_statements(replica, read_statements(directory), directory / LEDGER_FILE)
    replay(replica, _told(read_records(directory), tell), directory / LEDGER_FILE)
    replica.coefficients()
    renewals_for(directory, replica)
    write_pieces_durably(
        path,
        _counted(
            encode_log(signed, basis, replica, writer, partial(_read_renewal, directory, manifest)), replica, tell
        ),
    )
    records = replica.ledger.updates + 2 * replica.ledger.void_slots
    return _summary(directory, replica, records=records, writer=writer.author.hex())


def _read_renewal(directory: Path, manifest: Manifest, sha256: str) -> bytes:
    data = read_bytes(basis_path(directory, manifest, sha256), "the renewed basis")
    if hashlib.sha256(data).hexdigest() != sha256:
        path = basis_path(directory, manifest, sha256)
        raise OperatorError(f"{path} is damaged: start the node, it fetches the file from its neighbours")
    return data


def _told(records: Iterable[tuple[int, bytes]], tell: Tell) -> Iterator[tuple[int, bytes]]:
    for count, row in enumerate(records):
        if count % _TOLD_RECORDS == 0:
            tell(0, count)
        yield row


def _counted(pieces: Iterable[bytes], replica: Replica, tell: Tell) -> Iterator[bytes]:
    done = 0
    for piece in pieces:
        done += len(piece)
        tell(done, replica.ledger.updates)
        yield piece


def import_log(path: Path, choose_directory: Callable[[Manifest], Path], tell: Tell) -> LogSummary:
    """Verify the whole file, then make a data directory of it, or add it to the one of the same run that is there.

    A new directory appears whole, by one rename; what is added comes in one transaction. So whatever happens, a
    directory holds what it held before or all of it.

    Args:
        choose_directory: where, once the run is known.

    Raises:
        OperatorError: the file is no log, damaged or forged (the byte is named); the directory belongs to another run,
            is in use, or cannot be written.
        StorageDamagedError: the directory's own ledger is damaged.
    """
    chosen: list[Path] = []

    def on_manifest(manifest: Manifest) -> None:
        chosen.append(choose_directory(manifest))
        _check_directory(chosen[0], manifest)

    with _opened(path) as file:
        loaded = _load(path, file, on_manifest, tell)
    directory = chosen[0]
    if directory.exists() and any(directory.iterdir()):
        return _merge(loaded, directory, tell)
    return _create(loaded, directory)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise OperatorError(f"cannot read the log file {path}: {describe_os_error(error)}") from None


def _load(path: Path, file: BinaryIO, on_manifest: Callable[[Manifest], None], tell: Tell) -> LoadedLog:
    try:
        return load_log_untrusted(file.read, on_manifest, tell)
    except Reject as reject:
        raise OperatorError(f"log file {path}, {reject.detail}. Nothing was changed. {_AGAIN}") from None
    except OSError as error:
        raise OperatorError(f"cannot read the log file {path}: {describe_os_error(error)}") from None


def _check_directory(directory: Path, manifest: Manifest) -> None:
    """OperatorError, before the long part, when the log cannot go there."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise OperatorError(f"{directory} is a file: choose another --data-dir")
    if (directory / MANIFEST_FILE).exists():
        held = read_manifest(directory).manifest
        if held.run_id != manifest.run_id:
            raise OperatorError(
                f"the data directory {directory} belongs to run {held.name!r} ({held.run_id.hex()[:16]}), the log to "
                f"{manifest.name!r} ({manifest.run_id.hex()[:16]}). Use another --data-dir"
            )
    elif strange := sorted(entry.name for entry in directory.iterdir() if entry.name not in _MAY_LIE_THERE):
        raise OperatorError(f"{directory} is no data directory and holds {strange[0]!r}: choose another --data-dir")


def _create(loaded: LoadedLog, directory: Path) -> LogSummary:
    """A new data directory, written beside its place and moved there when it is whole."""
    parent = directory.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _clear_staged(directory.name, parent)
        staged = Path(tempfile.mkdtemp(prefix=f"{directory.name}.import-", dir=parent))
    except OSError as error:
        raise OperatorError(f"cannot make a folder in {parent}: {describe_os_error(error)}") from None
    try:
        staged.chmod(0o755)
        _fill(loaded, staged)
        os.replace(staged, directory)
        sync_folder(parent)
    except OSError as error:
        raise OperatorError(f"cannot make {directory}: {describe_os_error(error)}") from None
    finally:
        with suppress(OSError):  # it has been moved, unless something went wrong
            shutil.rmtree(staged)
    count = loaded.end.records
    return _summary(directory, loaded.replica, records=count, added=count, writer=loaded.end.writer.hex())


def _clear_staged(name: str, parent: Path) -> None:
    """Remove what an import into the folder ``name`` of ``parent`` left when it was killed. OSError."""
    for path in parent.iterdir():
        is_named_so = path.name.startswith(name) and _STAGED.fullmatch(path.name.removeprefix(name))
        if not is_named_so or path.is_symlink() or not path.is_dir() or is_locked(path):
            continue  # a lock: another import is at work
        if all(entry.name.startswith(_STAGED_FILES) for entry in path.iterdir()):
            shutil.rmtree(path)


def _fill(loaded: LoadedLog, folder: Path) -> None:
    store = Store(folder, loaded.signed)
    try:
        _keep_basis(loaded, folder)
        store.add_statements(loaded.replica.ledger.roster.statements())
        store.add(loaded.replica.ledger.ordered_records(), is_durable=True)
    finally:
        store.close()
    sync_folder(folder)


def _merge(loaded: LoadedLog, directory: Path, tell: Tell) -> LogSummary:
    store = Store(directory, loaded.signed)
    try:
        _keep_basis(loaded, directory)
        replica = Replica(loaded.signed.manifest)
        replay_statements(replica, store.statements(), directory / LEDGER_FILE)
        replay(replica, _told(store.records(), tell), directory / LEDGER_FILE)
        store.add_statements(_new_statements(replica, loaded))
        added, no_room = _new_records(replica, loaded)
        store.add(added, is_durable=True)
    finally:
        store.close()
    fields = {"records": loaded.end.records, "added": len(added), "no_room": no_room}
    return _summary(directory, replica, writer=loaded.end.writer.hex(), **fields)


def _new_statements(replica: Replica, loaded: LoadedLog) -> list[bytes]:
    """The file's statements that ``replica`` had not, now added to it."""
    added: list[bytes] = []
    for statement in loaded.replica.ledger.roster.statements():
        with suppress(Ignore):
            replica.add_statement(statement)
            added.append(statement)
    return added


def _new_records(replica: Replica, loaded: LoadedLog) -> tuple[list[bytes], int]:
    """The file's records that ``replica`` had not, now added to it; and how many it has no room for."""
    added: list[bytes] = []
    no_room = 0
    for record in loaded.replica.ledger.ordered_records():
        try:
            replica.add(record)
        except Ignore as ignore:
            no_room += ignore.reason is IgnoreReason.AUTHORS_FULL
            continue
        added.append(record)
    return added, no_room


def _keep_basis(loaded: LoadedLog, folder: Path) -> None:
    manifest = loaded.signed.manifest
    if loaded.basis is not None and manifest.method.basis is BasisKind.PUBLISHED:
        store_basis(manifest, loaded.basis, origin="the log's basis", data_dir=folder)
    for sha256, data in loaded.renewals.items():
        store_basis(manifest, data, origin="the log's basis", data_dir=folder, sha256=sha256)


def _summary(
    directory: Path, replica: Replica, *, records: int, writer: str, added: int = 0, no_room: int = 0
) -> LogSummary:
    return LogSummary(
        directory=directory,
        records=records,
        added=added,
        no_room=no_room,
        updates=replica.ledger.updates,
        void_slots=replica.ledger.void_slots,
        ledger_root=replica.ledger.root(),
        state_digest=replica.state_digest(),
        writer=writer,
    )
