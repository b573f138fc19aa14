"""Check a node's data directory: its disk, its run, its user, and whether ledger, key and basis can be used."""

import os
import tempfile
import time
from pathlib import Path

from protocol.errors import OperatorError, SfnodeError
from protocol.run import Manifest
from sfnode.doctor.findings import Finding, fail, ok, unknown, warning
from sfnode.reporter import counted, format_seconds
from sfnode.status import StatusWords, admission_of, last_status, read_status
from sfnode.storage import DataDirectory, disk, pasteable, stored_basis

_FREE_BYTES_MIN = 100 << 20
_FREE_BYTES_GOOD = 1 << 30
_FSYNC_S_GOOD = 0.1  # two for each own update


def check_directory(data_dir: DataDirectory, manifest: Manifest | None) -> Finding:
    """Report which run the directory belongs to, and whether a node runs on it now and is well."""
    if (starting_s := data_dir.starting_s()) is not None:
        return ok("data directory", f"a node has been starting on {data_dir} for {format_seconds(starting_s)}")
    if manifest is None:
        return ok("data directory", f"{data_dir} is new: `sfnode join` makes it")
    name = f"run {manifest.name!r} ({manifest.run_id.hex()[:16]})"
    if not data_dir.is_locked():
        return ok("data directory", f"{data_dir} belongs to {name}; no node runs on it")
    try:
        status = read_status(data_dir)
    except OperatorError as error:
        return warning("data directory", f"{data_dir} is held by a node, but: {error}", "see its log; restart it")
    node, roster, words = status.node, status.roster, StatusWords(status)
    peers = counted(node.peers, "peer")
    text = f"{data_dir} belongs to {name}; a node runs on it, pid {status.life.pid}, step {node.step}, {peers}"
    if not node.peers:
        return warning("data directory", text, "it has no peer: see the lines about bootstraps, or give it another one")
    if roster.excluded_from is not None or (status.training.is_training and not roster.is_admitted):
        return warning("data directory", f"{text}; {admission_of(status)}", "until then it follows, and sends nothing")
    if words.slips:
        return warning("data directory", f"{text}; {words.slips}", "nothing need be done on this machine")
    return ok("data directory", text)


def check_speed(data_dir: DataDirectory) -> Finding | None:
    """Report how many measurements of a round the node makes at the run's pace; None: not known, or it is a relay."""
    status = last_status(data_dir)
    detail = status.detail if status is not None and status.training.is_training else None
    if detail is None or detail.progress.round_s is None:
        return None
    chosen, all_of_them = detail.progress.directions, detail.progress.directions_max
    count = "all" if chosen == all_of_them else f"{chosen} of"
    text = f"the node makes {count} {all_of_them} measurements a round in the run's pace"
    return ok("speed", f"{text}; the last round took it {detail.progress.round_s:.3g} s")


def check_privacy(data_dir: DataDirectory) -> Finding:
    """Check that other users of this machine cannot enter the directory. OperatorError: it is another user's."""
    if not data_dir.path.exists():
        return ok("privacy", "`sfnode join` makes the directory, for you only")
    data_dir.check()
    if data_dir.is_open_to_others():
        text = f"other users of this machine can enter {data_dir}"
        return warning("privacy", text, f"{pasteable('chmod 700', data_dir)}; a node does that when it starts")
    return ok("privacy", f"only you can enter {data_dir}")


def check_ledger(data_dir: DataDirectory) -> Finding:
    """Check that the ledger can be read to its end; signatures are not verified."""
    if not data_dir.ledger_file.exists():
        return ok("ledger", "none yet")
    try:
        with data_dir.reading() as stored:
            records = sum(1 for _ in stored.records())
    except SfnodeError as error:
        return fail("ledger", str(error), f"move {data_dir.ledger_file} away and start again; keep identity.key")
    verify = pasteable("sfnode log verify", data_dir)
    return ok("ledger", f"{records:,} records can be read (`{verify}` checks every signature)")


def check_identity(data_dir: DataDirectory) -> Finding:
    """Check that the node's key is valid and that only its owner can read it."""
    path = data_dir.identity.path
    if path.exists():
        try:
            data_dir.identity.seed()
        except OperatorError as error:
            return fail("identity", str(error), f"or remove {path}: the node then joins as a new author")
        return ok("identity", f"{path}, readable by you only")
    try:
        author = data_dir.author()
    except SfnodeError:
        author = None  # `check_ledger` reports what is wrong with the ledger
    if author is None:
        return ok("identity", "none yet: `sfnode join` makes one")
    text = f"{path} is missing, but a node has run here as {author}"
    return fail("identity", text, f"restore it: {pasteable('sfnode id restore BACKUP --data-dir', data_dir)}")


def check_basis(data_dir: DataDirectory, manifest: Manifest) -> Finding:
    """Check that the run's published basis is here and whole."""
    if not manifest.method.is_dense:
        return ok("basis", "the run's is drawn: no file is needed")
    held = data_dir.basis.find(manifest)
    if held is None:
        return unknown("basis", "not here yet: the first --bootstrap sends it, or give the owner's file with --basis")
    try:
        stored_basis.read_bases(manifest, held)
    except OperatorError as error:
        return fail("basis", str(error), f"remove {held} and join with --bootstrap, so that a peer sends it")
    return ok("basis", f"{held} is the run's")


# --- its disk


def existing_part(folder: Path) -> Path:
    """Return the folder, or the nearest folder above it that exists."""
    path = folder.absolute()
    return next(each for each in (path, *path.parents) if each.is_dir())


def check_space(folder: Path, needed_bytes: int) -> Finding:
    """Check the free space for the node's state; ``needed_bytes``: final size of the ledger; 0: not known."""
    place = existing_part(folder)
    free = disk.free_disk_bytes(place)
    if free is None:
        return unknown("disk space", f"the system does not say what is free on the disk of {place}")
    text = f"{free / 1e9:.1f} GB free on the disk of {place}"
    wanted = max(_FREE_BYTES_MIN, needed_bytes)
    if free < wanted:
        advice = f"free some: the ledger may take {wanted / 1e6:,.0f} MB; or use another --data-dir"
        return fail("disk space", text, advice)
    if free < max(_FREE_BYTES_GOOD, 2 * needed_bytes):
        return warning("disk space", text, "keep an eye on it: a node stops when its disk is full")
    return ok("disk space", text)


def check_writing(folder: Path) -> Finding:
    """Time a write and fsync of a page where the node keeps its state, as it does for each own update."""
    place = existing_part(folder)
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".sfnode-doctor-") as file:
            file.write(bytes(4_096))
            file.flush()
            started_s = time.perf_counter()
            os.fsync(file.fileno())
            taken_s = time.perf_counter() - started_s
    except OSError as error:
        advice = f"make {place} writable for this user, free some space, or use another --data-dir"
        return fail("disk writing", f"cannot write in {place}: {error.strerror}", advice)
    text = f"a page is safe on the disk of {place} after {1_000 * taken_s:.1f} ms"
    if taken_s > _FSYNC_S_GOOD:
        advice = "each own step waits for it twice: a local disk is better than a network's"
        return warning("disk writing", text, advice)
    return ok("disk writing", text)
