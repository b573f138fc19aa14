"""Keep the secret that lets a browser on another machine see the page, in a file of the data directory."""

import secrets
from typing import Final

from protocol.errors import OperatorError
from sfnode.storage import DataDirectory, disk

TOKEN_FILE: Final = "web.token"
_BYTES: Final = 24  # 192 bits: impossible to guess, and short enough for a line
_LENGTH: Final = 32


def load_or_create_token(data_dir: DataDirectory) -> tuple[str, bool]:
    """Return the token of a data directory, and whether it was created now.

    OperatorError if other users can read the file, or if it holds no token.
    """
    path = data_dir.path / TOKEN_FILE
    if not path.exists():
        token = secrets.token_urlsafe(_BYTES)
        disk.write_durably(path, f"{token}\n".encode(), mode=0o600)
        return token, True
    if path.stat().st_mode & 0o077:
        raise OperatorError(f"other users of this machine can read {path}. Remove it: the next start makes a new token")
    token = disk.read_bytes(path, "the page's token").decode("ascii", "replace").strip()
    if len(token) != _LENGTH:
        raise OperatorError(f"{path} holds no token of {_LENGTH} characters. Remove it: the next start makes a new one")
    return token, False
