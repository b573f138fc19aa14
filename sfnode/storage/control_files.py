"""The operator's requests to a running node, as files in its data directory: to pause, to stop.

Only its user can write to the directory. Files work on every system, for every container that shares the folder, and
across restarts. The node's last word, how its last life ended, is such a file too, for `sfnode status`.
"""

import json
import math
import os
import time
from contextlib import suppress
from pathlib import Path

from protocol.errors import OperatorError
from sfnode.storage.disk import os_errors, read_bytes, write_durably
from sfnode.storage.exclusive_folder import ExclusiveFolder

_END_BYTES = 4_096  # reserved when the node starts, so that the text can be written even to a full disk
_END_TEXT_MAX = 600  # characters, of at most six bytes each in JSON
_MODE = 0o600


class ControlFiles:
    """Writes, finds and removes the requests to one node. All methods that change a file raise OperatorError."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._pause_file, self._stop_file = ExclusiveFolder(folder), folder / "paused", folder / "stop"

    def is_paused(self) -> bool:
        return self.paused_until_s() > time.time()

    def paused_until_s(self) -> float:
        """Return the time, in seconds since 1970, until which the node is paused; infinity: until `resume`."""
        try:
            text = self._pause_file.read_text("ascii").strip()
            return float(text) if text else math.inf
        except (OSError, ValueError):  # if anything stands there, an operator meant it as a pause
            return math.inf if os.path.lexists(self._pause_file) else 0.0

    def pause(self, until_s: float = math.inf) -> None:
        """Make the node measure nothing until that time or `resume`, also after restarts."""
        self._folder.check()
        text = "" if math.isinf(until_s) else f"{until_s:.0f}\n"
        write_durably(self._pause_file, text.encode("ascii"), mode=_MODE)

    def resume(self) -> None:
        """Let the node measure again; does nothing if it is not paused."""
        _unlink(self._pause_file)

    def is_asked_to_stop(self) -> bool:
        return os.path.exists(self._stop_file)

    def ask_to_stop(self) -> None:
        """Ask the node that runs there to end in good order."""
        self._folder.check()
        write_durably(self._stop_file, b"", mode=_MODE)

    def forget_stop(self) -> None:
        """Withdraw the request to stop, when the node has ended or starts again."""
        _unlink(self._stop_file)


def _unlink(path: Path) -> None:
    with os_errors(f"remove {path}"), suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()


class EndFile:
    """Writes and reads the end of a node's last life."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def expect(self) -> None:
        """Record that a life begins and that its end is unknown until `write`. OperatorError."""
        write_durably(self._path, b" " * _END_BYTES, mode=_MODE)

    def write(self, text: str) -> None:
        """Record that a life has ended, with this text; empty if it was stopped. OperatorError."""
        end = {"time": time.time(), "text": text[:_END_TEXT_MAX]}
        data = json.dumps(end, ensure_ascii=False).encode("utf-8", "replace").ljust(_END_BYTES)
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
        if not data:  # the disk was full
            return ""
        if not data.strip():
            return "it was killed, ran out of memory, crashed, or its machine went down"
        try:
            end = json.loads(data)
            text, when = str(end["text"]), time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(end["time"]))
        except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
            return ""
        return f"it ended at {when}: {text}" if text else f"it ended in good order at {when}"
