"""The owner's notes of who got which invitation, by token: for `sfnode run invite --for`. Nobody else sees them."""

import json
from pathlib import Path

from protocol.crypto import KEY_BYTES
from protocol.errors import OperatorError
from protocol.schema import is_hex
from sfnode.storage.disk import read_bytes, write_durably


class InvitedFile:
    """Reads and writes the notes of one data directory."""

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
        held = {key.hex(): noted for key, noted in self.read().items()} | {token.hex(): name}
        write_durably(self._path, json.dumps(held).encode("ascii"), mode=0o600)
