"""What the operator asks of a node while it runs, as files in its data directory: to pause, to stop.

The directory is its user's alone, and a file is there on every system, for every container that shares the folder, and
after a restart.
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
    """Whether the operator has paused the node of this data directory."""
    return (directory / _PAUSE_FILE).exists()


def pause(directory: Path) -> None:
    """Let the node measure nothing until `unpause`, over restarts too. OperatorError."""
    write_durably(directory / _PAUSE_FILE, b"", mode=_MODE)


def unpause(directory: Path) -> None:
    """Let it measure again; nothing changes where it was not paused. OperatorError."""
    _unlink(directory / _PAUSE_FILE)


def is_asked_to_stop(directory: Path) -> bool:
    """Whether the node that runs there is to end."""
    return (directory / _STOP_FILE).exists()


def ask_to_stop(directory: Path) -> None:
    """Let the node that runs there end in good order. OperatorError."""
    write_durably(directory / _STOP_FILE, b"", mode=_MODE)


def forget_stop(directory: Path) -> None:
    """Nobody asks any more: it has ended, or starts again. OperatorError."""
    _unlink(directory / _STOP_FILE)


def _unlink(path: Path) -> None:
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise OperatorError(f"cannot remove {path}: {describe_os_error(error)}") from None
