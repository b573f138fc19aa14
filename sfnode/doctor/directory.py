"""Check a node's data directory: its run, its user, and whether ledger, key and basis can be used."""

from __future__ import annotations

from pathlib import Path

from protocol.errors import OperatorError, SfnodeError
from protocol.run import BasisKind, Manifest
from sfnode.doctor.findings import Finding, fail, ok, unknown, warning
from sfnode.reporter import counted
from sfnode.status import StatusWords, last_status, read_status
from sfnode.storage import (
    IDENTITY_FILE,
    LEDGER_FILE,
    basis_in,
    check_folder,
    is_locked,
    is_open_to_others,
    load_seed,
    read_author,
    read_bases,
    read_bytes,
    read_records,
)


def check_directory(directory: Path, manifest: Manifest | None) -> Finding:
    """Report which run the directory belongs to, and whether a node runs on it now and is well."""
    if manifest is None:
        return ok("data directory", f"{directory} is new: `sfnode join` makes it")
    name = f"run {manifest.name!r} ({manifest.run_id.hex()[:16]})"
    if not is_locked(directory):
        return ok("data directory", f"{directory} belongs to {name}; no node runs on it")
    try:
        status = read_status(directory)
    except OperatorError as error:
        return warning("data directory", f"{directory} is held by a node, but: {error}", "see its log; restart it")
    node, roster, words = status.node, status.roster, StatusWords(status)
    peers = counted(node.peers, "peer")
    text = f"{directory} belongs to {name}; a node runs on it, pid {status.life.pid}, step {node.step}, {peers}"
    if not node.peers:
        return warning("data directory", text, "it has no peer: see the lines about bootstraps, or give it another one")
    if roster.excluded_from is not None or (status.training.is_training and not roster.is_admitted):
        return warning("data directory", f"{text}; {words.admission}", "until then it follows, and sends nothing")
    if words.slips:
        return warning("data directory", f"{text}; {words.slips}", "nothing need be done on this machine")
    return ok("data directory", text)


def check_speed(directory: Path) -> Finding | None:
    """Report how many directions of a round the node measures at the run's pace; None: not known, or it is a relay."""
    status = last_status(directory)
    detail = status.detail if status is not None and status.training.is_training else None
    if detail is None or detail.progress.round_s is None:
        return None
    chosen, all_of_them = detail.progress.directions, detail.progress.directions_max
    count = "all" if chosen == all_of_them else f"{chosen} of"
    text = f"the node measures {count} {all_of_them} directions a round in the run's pace"
    return ok("speed", f"{text}; the last round took it {detail.progress.round_s:.3g} s")


def check_privacy(directory: Path) -> Finding:
    """Check that other users of this machine cannot enter the directory. OperatorError: it is another user's."""
    if not directory.exists():
        return ok("privacy", "`sfnode join` makes the directory, for you only")
    check_folder(directory)
    if is_open_to_others(directory):
        text = f"other users of this machine can enter {directory}"
        return warning("privacy", text, f"chmod 700 {directory}; a node does that when it starts")
    return ok("privacy", f"only you can enter {directory}")


def check_ledger(directory: Path) -> Finding:
    """Check that the ledger can be read to its end; signatures are not verified."""
    if not (directory / LEDGER_FILE).exists():
        return ok("ledger", "none yet")
    try:
        records = sum(1 for _ in read_records(directory))
    except SfnodeError as error:
        return fail("ledger", str(error), f"move {directory / LEDGER_FILE} away and start again; keep {IDENTITY_FILE}")
    return ok("ledger", f"{records:,} records can be read (`sfnode log verify {directory}` checks every signature)")


def check_identity(directory: Path) -> Finding:
    """Check that the node's key is valid and that only its owner can read it."""
    path = directory / IDENTITY_FILE
    if not path.exists():
        return _missing_identity(directory)
    try:
        load_seed(path)
    except OperatorError as error:
        return fail("identity", str(error), f"or remove {path}: the node then joins as a new author")
    return ok("identity", f"{path}, readable by you only")


def _missing_identity(directory: Path) -> Finding:
    try:
        author = read_author(directory)
    except SfnodeError:
        author = None  # `check_ledger` reports what is wrong with the ledger
    if author is None:
        return ok("identity", "none yet: `sfnode join` makes one")
    text = f"{directory / IDENTITY_FILE} is missing, but a node has run here as {author or 'somebody'}"
    return fail("identity", text, f"restore it: sfnode id restore BACKUP --data-dir {directory}")


def check_basis(directory: Path, manifest: Manifest) -> Finding:
    """Check that the run's published basis is here and whole."""
    if manifest.method.basis is BasisKind.RANDOM:
        return ok("basis", "the run's is random: no file is needed")
    held = basis_in(directory, manifest)
    if held is None:
        return unknown("basis", "not here yet: the first --bootstrap sends it, or give the owner's file with --basis")
    try:
        read_bytes(held, "the basis")
        read_bases(manifest, held)
    except OperatorError as error:
        return fail("basis", str(error), f"remove {held} and join with --bootstrap, so that a peer sends it")
    return ok("basis", f"{held} is the run's")
