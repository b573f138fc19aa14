"""The operator's requests to a running node, as files in its data directory: to pause, to stop.

Only its user can write to the directory. Files work on every system, for every container that shares the folder, and
across restarts.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

from sfnode.storage.disk import os_errors, write_durably

_MODE: Final = 0o600


class ControlFiles:
    """Writes, finds and removes the requests to one node. All methods that change a file raise OperatorError."""

    def __init__(self, folder: Path) -> None:
        self._pause_file, self._stop_file = folder / "paused", folder / "stop"

    def is_paused(self) -> bool:
        """Return whether the operator has paused the node."""
        return self._pause_file.exists()

    def pause(self) -> None:
        """Make the node measure nothing until `resume`, also after restarts."""
        write_durably(self._pause_file, b"", mode=_MODE)

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
