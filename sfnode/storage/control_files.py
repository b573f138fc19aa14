"""The operator's requests to a running node, as files in its data directory: to pause, to stop.

Only its user can write to the directory. Files work on every system, for every container that shares the folder, and
across restarts.
"""

import math
import time
from contextlib import suppress
from pathlib import Path

from sfnode.storage.disk import os_errors, write_durably

_MODE = 0o600


class ControlFiles:
    """Writes, finds and removes the requests to one node. All methods that change a file raise OperatorError."""

    def __init__(self, folder: Path) -> None:
        self._pause_file, self._stop_file = folder / "paused", folder / "stop"

    def is_paused(self) -> bool:
        """Return whether the operator has paused the node."""
        return self.paused_until_s() > time.time()

    def paused_until_s(self) -> float:
        """Return the time, in seconds since 1970, until which the node is paused; infinity: until `resume`."""
        try:
            text = self._pause_file.read_text("ascii").strip()
            return float(text) if text else math.inf
        except (FileNotFoundError, NotADirectoryError):
            return 0.0
        except (OSError, ValueError):
            return math.inf  # something stands there that an operator meant as a pause

    def pause(self, until_s: float = math.inf) -> None:
        """Make the node measure nothing until that time or `resume`, also after restarts."""
        text = "" if math.isinf(until_s) else f"{until_s:.0f}\n"
        write_durably(self._pause_file, text.encode("ascii"), mode=_MODE)

    def resume(self) -> None:
        """Let the node measure again; does nothing if it is not paused."""
        _unlink(self._pause_file)

    def is_asked_to_stop(self) -> bool:
        """Return whether the node is asked to stop."""
        return self._stop_file.exists()

    def ask_to_stop(self) -> None:
        """Ask the node that runs there to end in good order."""
        write_durably(self._stop_file, b"", mode=_MODE)

    def forget_stop(self) -> None:
        """Withdraw the request to stop, when the node has ended or starts again."""
        _unlink(self._stop_file)


def _unlink(path: Path) -> None:
    with os_errors(f"remove {path}"), suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()
