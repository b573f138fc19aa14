"""Statements for a node, as lines of hexadecimal digits in files; and an owner's notes of who got which invitation.

A node reads the folder of such files every second, or when it starts next. A file stays until its statements are
durable in the ledger.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from protocol.crypto import KEY_BYTES
from protocol.errors import OperatorError, Reject
from protocol.ledger import Statement, StatementCodec
from protocol.run import Manifest
from protocol.schema import is_hex
from sfnode.storage.disk import os_errors, read_bytes, write_durably
from sfnode.storage.exclusive_folder import ExclusiveFolder

INBOX_FOLDER = "statements"  # in the data directory
ENDING = ".statements"
CLAIM_FILE = "invitation.claim"  # in the data directory: the claim that the node signed with its invitation
_REFUSED_ENDING = ".refused"
_FILE_BYTES_MAX = 64 << 20  # all statements that a node may hold


def write_statements(path: Path, statements: Sequence[bytes]) -> None:
    """Write one statement on each line. OperatorError says why that fails."""
    write_durably(path, b"".join(statement.hex().encode("ascii") + b"\n" for statement in statements))


def read_statements_file(manifest: Manifest, path: Path) -> list[Statement]:
    """Return the statements in a file, every signature checked; OperatorError names the line that is wrong."""
    data, codec, found = read_bytes(path, "the statements", _FILE_BYTES_MAX), StatementCodec(manifest), []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            statement = codec.decode_untrusted(bytes.fromhex(line.decode("ascii")))
            codec.check_signed(statement)
        except ValueError:
            raise OperatorError(f"{path}, line {number}: not hexadecimal. `sfnode run` writes such files") from None
        except Reject as reject:
            raise OperatorError(f"{path}, line {number}: {reject.detail}; is it of another run?") from None
        found.append(statement)
    return found


class StatementFiles:
    """Holds the statements that wait for one node, and the claim of its own invitation."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._inbox = ExclusiveFolder(folder), folder / INBOX_FOLDER
        self._claim_file = folder / CLAIM_FILE

    def submit(self, statements: Sequence[bytes]) -> Path:
        """Leave statements for the node, running or not; the same ones twice are one file."""
        self._folder.check()
        path = self._inbox / f"{hashlib.sha256(b''.join(statements)).hexdigest()[:16]}{ENDING}"
        write_statements(path, statements)
        return path

    def waiting(self) -> list[Path]:
        """Return the files that the node has not taken in yet, by name."""
        return sorted(self._inbox.glob(f"*{ENDING}")) if os.path.isdir(self._inbox) else []

    def put_away(self, path: Path, *, is_refused: bool = False) -> None:
        """Remove a file that the node has taken in; if ``is_refused``, rename it instead. OperatorError."""
        with os_errors(f"put {path} away"):
            if is_refused:
                path.replace(path.with_suffix(_REFUSED_ENDING))
            else:
                path.unlink(missing_ok=True)

    def keep_claim(self, claim: bytes) -> None:
        """Keep the claim of the node's last invitation, which others may have used before. OperatorError."""
        write_statements(self._claim_file, [claim])

    def own_claim(self, manifest: Manifest) -> Statement | None:
        """Return the claim that `keep_claim` stored; None if the node had no invitation. OperatorError."""
        path = self._claim_file
        return next(iter(read_statements_file(manifest, path)), None) if path.exists() else None


class InvitedFile:
    """Reads and writes the owner's notes of who got which invitation, by token: for `sfnode run invite --for`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[bytes, str]:
        """Return the name noted for each token. OperatorError: the file cannot be read."""
        if not self._path.exists():
            return {}
        try:
            found = json.loads(read_bytes(self._path, "the notes of invitations"))
            is_right = all(is_hex(token, 2 * KEY_BYTES) and isinstance(name, str) for token, name in found.items())
        except (ValueError, AttributeError, TypeError, RecursionError):
            is_right = False
        if not is_right:
            raise OperatorError(f"{self._path} is damaged. Remove it: who got which invitation is forgotten then")
        return {bytes.fromhex(token): name for token, name in found.items()}

    def note(self, token: bytes, name: str) -> None:
        """Note that the invitation of this token is for ``name``. OperatorError if the file cannot be written."""
        folder = ExclusiveFolder(self._path.parent)
        folder.check()
        with folder.changing():
            held = {key.hex(): noted for key, noted in self.read().items()} | {token.hex(): name}
            write_durably(self._path, json.dumps(held).encode("ascii"), mode=0o600)
