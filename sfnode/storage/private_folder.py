"""Keeps the folder of a node's key and records to one user: nobody else can read, plant or lock a file in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from protocol.errors import OperatorError
from sfnode.storage.files import describe_os_error

_MODE: Final = 0o700
_ROOT: Final = 0  # may do anything anyway; a separate volume has its "lost+found"


def claim_folder(directory: Path) -> bool:
    """Make the folder, or close it to other users; return whether they could enter it until now. OperatorError."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=_MODE)
        check_folder(directory)
        was_open = is_open_to_others(directory)
        if was_open:
            directory.chmod(_MODE)
    except OSError as error:
        raise OperatorError(f"cannot use the data directory {directory}: {describe_os_error(error)}") from None
    if is_open_to_others(directory):
        raise OperatorError(
            f"other users of this machine can enter the data directory {directory}, and its file system does not let "
            "that be changed. Use another --data-dir"
        )
    return was_open


def check_folder(directory: Path) -> None:
    """Raise OperatorError if the folder, or something in it, belongs to another user. OSError."""
    if directory.stat().st_uid != os.geteuid() or _is_foreign(directory):
        raise OperatorError(
            f"the data directory {directory} belongs to another user of this machine, who could read the node's key "
            "there and keep the node from starting. Use another --data-dir, or start the node as that user"
        )
    for path in directory.iterdir():
        if _is_foreign(path):
            raise OperatorError(
                f"{path} belongs to another user of this machine, who has put it into the data directory. Look what it "
                "is and remove it, or use another --data-dir"
            )


def is_open_to_others(directory: Path) -> bool:
    """Return whether anybody but its owner can enter, list or change the folder. OSError."""
    return directory.stat().st_mode & 0o077 != 0


def _is_foreign(path: Path) -> bool:
    """Return whether a file, or a link itself, belongs neither to us nor to root."""
    try:
        return path.lstat().st_uid not in (os.geteuid(), _ROOT)
    except FileNotFoundError:
        return False  # a temporary file of a node that runs here, gone by now
