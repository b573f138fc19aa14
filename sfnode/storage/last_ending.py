"""Keeps how the last life of a node ended, for `sfnode status` when no node runs any more."""

import json
import os
import time
from pathlib import Path

from protocol.errors import OperatorError
from sfnode.storage.disk import os_errors, read_bytes, write_durably

_BYTES = 4_096  # reserved when the node starts, so that the text can be written even to a full disk
_TEXT_MAX = 600  # characters, of at most six bytes each in JSON
_MODE = 0o600


class EndFile:
    """Writes and reads the end of a node's last life."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def expect(self) -> None:
        """Record that a life begins and that its end is unknown until `write`. OperatorError."""
        write_durably(self._path, b" " * _BYTES, mode=_MODE)

    def write(self, text: str) -> None:
        """Record that a life has ended, with this text; empty if it was stopped. OperatorError.

        Does nothing if there is no directory.
        """
        if not self._path.parent.is_dir():
            return
        end = {"time": time.time(), "text": text[:_TEXT_MAX]}
        data = json.dumps(end, ensure_ascii=False).encode("utf-8", "replace").ljust(_BYTES)
        with os_errors(f"write {self._path}"):
            # Overwrite in place: a full disk would refuse a new or a larger file.
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, _MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)

    def describe(self) -> str:
        """Return in words how the last life ended; empty if that is unknown, or no node of this release ran there."""
        try:
            data = read_bytes(self._path, "how the node ended")
        except OperatorError:
            return ""
        if not data.strip():
            return "it was killed, ran out of memory, crashed, or its machine went down"
        try:
            end = json.loads(data)
            text, when = str(end["text"]), time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(end["time"]))
        except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
            return ""
        return f"it ended at {when}: {text}" if text else f"it ended in good order at {when}"
