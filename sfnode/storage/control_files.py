"""The operator's requests to a running node, as files in its data directory: to pause, to stop.

Only its user can write to the directory. Files work on every system, for every container that shares the folder, and
across restarts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from protocol.errors import OperatorError
from sfnode.storage.files import describe_os_error, write_durably

_PAUSE_FILE: Final = "paused"
_STOP_FILE: Final = "stop"
_MODE: Final = 0o600


def is_paused(directory: Path) -> bool:
    """Return whether the operator has paused the node of this data directory."""
    return (directory / _PAUSE_FILE).exists()


def pause(directory: Path) -> None:
    """Make the node measure nothing until `unpause`, also after restarts. OperatorError."""
    write_durably(directory / _PAUSE_FILE, b"", mode=_MODE)


def unpause(directory: Path) -> None:
    """Let the node measure again; does nothing if it is not paused. OperatorError."""
    _unlink(directory / _PAUSE_FILE)


def is_asked_to_stop(directory: Path) -> bool:
    """Return whether the node of this data directory is asked to stop."""
    return (directory / _STOP_FILE).exists()


def ask_to_stop(directory: Path) -> None:
    """Ask the node that runs there to end in good order. OperatorError."""
    write_durably(directory / _STOP_FILE, b"", mode=_MODE)


def forget_stop(directory: Path) -> None:
    """Withdraw the request to stop, when the node has ended or starts again. OperatorError."""
    _unlink(directory / _STOP_FILE)


def _unlink(path: Path) -> None:
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise OperatorError(f"cannot remove {path}: {describe_os_error(error)}") from None
