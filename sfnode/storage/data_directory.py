"""The data directory of one node: which files it holds, and the object through which every room reaches them."""

import os
import re
import shutil
import time
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from protocol.errors import OperatorError, Reject
from protocol.run import Manifest, SignedManifest, decode_run_untrusted
from protocol.state import Replica
from sfnode.storage.control_files import ControlFiles, EndFile
from sfnode.storage.disk import os_errors, read_bytes, write_durably
from sfnode.storage.evaluations import EvaluationsFile, GainFile
from sfnode.storage.exclusive_folder import LOCK_FILE, START_FILE, ExclusiveFolder
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from sfnode.storage.statement_files import CLAIM_FILE, INBOX_FOLDER, InvitedFile, StatementFiles
from sfnode.storage.stored_basis import BASIS_FILE, StoredBasis
from sfnode.storage.stored_records import StoredRecords, stored_records

MANIFEST_FILE = "manifest.run"
LEDGER_FILE = "ledger.sqlite3"
STATUS_FILE = "status.json"
NODE_FILE = "node.toml"
_RESERVED_FILE = "reserved_step"
_EVALUATIONS_FILE = "evaluations.json"
_GAIN_FILE = "gain.json"
END_FILE = "end.json"
_INVITED_FILE = "invited.json"
STAGED = re.compile(r"\.import-[a-z0-9_]{8}$")  # at the end of a directory's name: `log import` is making it
_TEMPORARY = re.compile(r".+\.[0-9a-f]{16}\.tmp")  # `disk.write_durably` is writing it, or was killed
_WRITING_S = 600.0  # a command may be writing to a node's directory when the node starts
# Names that are not `DataDirectory.own_files` and yet a node's: of its database, requests, snapshots, public data.
_MORE_NAMES = re.compile(
    r"ledger\.sqlite3-\w+|paused|stop|web\.token|halt\.json|halt-snapshot\.bin|"
    r"snapshot-\d+-[0-9a-f]{16}\.bin|data-[0-9a-f]{16}\.jsonl|" + f"{_TEMPORARY.pattern}|{STAGED.pattern}"
)


class DataDirectory(ExclusiveFolder):
    """Owns the folder of one node in one run. A `Store` opens it for the node; everything here works without one.

    Attributes:
        manifest_file, ledger_file: of the run's manifest, and of the database.
        reserved_file: of the highest step that the node may have signed, for the case that the database is lost.
        status_file: a running node writes it every second.
        node_file: of the options that the node remembers.
        identity: the node's key.
        control, statements: what waits for the node: the operator's requests, statements.
        basis: of a run with a dense core.
        evaluations, gain: results on the node's held-out data; the gain as `sfnode eval --compare` measured it last.
        end: how the node's last life ended.
        invited: the owner's notes of who got which invitation.
    """

    marks = frozenset((IDENTITY_FILE, MANIFEST_FILE))
    own_files = marks | {LOCK_FILE, LEDGER_FILE, STATUS_FILE, NODE_FILE, _EVALUATIONS_FILE, END_FILE, BASIS_FILE}
    own_files |= {START_FILE, INBOX_FOLDER, CLAIM_FILE, _GAIN_FILE, _INVITED_FILE, _RESERVED_FILE}

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.manifest_file = path / MANIFEST_FILE
        self.ledger_file = path / LEDGER_FILE
        self.reserved_file = path / _RESERVED_FILE
        self.status_file = path / STATUS_FILE
        self.node_file = path / NODE_FILE
        self.identity = KeyFile(path / IDENTITY_FILE)
        self.control = ControlFiles(path)
        self.statements = StatementFiles(path)
        self.basis = StoredBasis(path)
        self.evaluations = EvaluationsFile(path / _EVALUATIONS_FILE)
        self.gain = GainFile(path / _GAIN_FILE)
        self.end = EndFile(path / END_FILE)
        self.invited = InvitedFile(path / _INVITED_FILE)

    @property
    def is_node(self) -> bool:
        """Return whether a node has its state here, or starts; not while `log import` still makes the directory."""
        is_there = os.path.exists(self.manifest_file) or self.starting_s() is not None
        return is_there and not STAGED.search(self.path.name)

    # --- the run ------------------------------------------------------------------------------------------

    def check_is_node(self) -> None:
        """Raise OperatorError unless a node has its state here: of any release, and with a damaged manifest, too."""
        if not self.manifest_file.exists():
            if self.starting_s() is not None:
                text = f"the node on {self} has only begun to start: try again once it has its manifest"
                raise OperatorError(text, "starting")
            raise OperatorError(f"{self} is not a node's data directory: it has no {MANIFEST_FILE}", "no_node")

    def signed_manifest(self) -> SignedManifest:
        """Return the run's signed manifest. OperatorError: there is none."""
        self.check_is_node()
        return decode_run_file(self.manifest_file)

    def adopt(self, signed: SignedManifest) -> None:
        """Store the run's manifest, if there is none. OperatorError: the directory belongs to another run."""
        self.check_run(signed)
        if not self.manifest_file.exists():
            write_durably(self.manifest_file, signed.encode())

    def check_run(self, signed: SignedManifest) -> None:
        """Raise OperatorError if the directory belongs to another run."""
        with os_errors(f"use the data directory {self}"):
            held = decode_run_file(self.manifest_file).manifest if self.manifest_file.exists() else signed.manifest
        if held.run_id != signed.manifest.run_id:
            own, new = (f"{each.name!r} ({each.run_id.hex()[:16]})" for each in (held, signed.manifest))
            raise OperatorError(f"the data directory {self} belongs to run {own}, not to {new}. Use another --data-dir")

    def entries(self) -> tuple[list[Path], list[Path]]:
        """Return what lies in the directory, by name: what nodes write, and what somebody else has put there."""
        found = sorted(self.path.iterdir())
        own = [path for path in found if path.name in self.own_files or _MORE_NAMES.fullmatch(path.name)]
        return own, [path for path in found if path not in own]

    def remove_killed_writes(self) -> None:
        """Remove the temporary files that killed writes have left. Call it with the lock; what cannot go stays."""
        with suppress(OSError):
            for path in self.path.iterdir():
                if _TEMPORARY.fullmatch(path.name) and time.time() - path.lstat().st_mtime > _WRITING_S:
                    path.unlink()

    def remove(self) -> None:
        """Remove what nodes write, for good, and the directory if nothing else is in it. OperatorError: a node runs."""
        lock = self.lock()
        folders = [path for path in self.entries()[0] if path.is_dir() and not path.is_symlink()]
        try:
            os.close(self.lock_start())  # none may start, either
            with os_errors(f"remove {self}"):
                for folder in folders:
                    shutil.rmtree(folder)
                for path in self.entries()[0]:
                    path.unlink()
        finally:
            os.close(lock)
        with suppress(OSError):  # not empty
            self.path.rmdir()

    # --- what the node has stored: read-only, a node may be running there ---------------------------------

    def reading(self) -> AbstractContextManager[StoredRecords]:
        """Open the records as they are at one moment. OperatorError if no node has run there."""
        return stored_records(self.ledger_file)

    @contextmanager
    def replayed(self, manifest: Manifest) -> Iterator[Replica]:
        """Yield the replica of the directory, which cannot be used after the block: it reads from the directory.

        OperatorError if no node has run there; StorageDamagedError.
        """
        with self.reading() as stored:
            yield stored.replica(manifest)

    def author(self) -> str | None:
        """Return the public key, in hex, of the node that ran here; None if none did."""
        if not self.ledger_file.exists():
            return None
        with self.reading() as stored:
            return stored.fact("author")


def decode_run_file(path: Path) -> SignedManifest:
    """Read and check a ``.run`` file; OperatorError says what is wrong with it."""
    try:
        found = read_bytes(path, "the run file").removeprefix(BOM_UTF8)  # which Windows may add, with its line ends
        return decode_run_untrusted(found.replace(b"\r\n", b"\n"))
    except Reject as reject:
        advice = ". Put the owner's run file in its place" if path.name == MANIFEST_FILE else ""
        raise OperatorError(f"run file {path}: {reject.detail}{advice}") from None
