"""Keeps how the last life of a node ended, for `sfnode status` when no node runs any more."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Final

from protocol.errors import OperatorError
from sfnode.storage.files import describe_os_error, read_bytes, write_durably

_END_FILE: Final = "end.json"
_BYTES: Final = 4_096  # reserved when the node starts, so that the text can be written even to a full disk
_TEXT_MAX: Final = 600  # characters, of at most six bytes each in JSON
_MODE: Final = 0o600


def expect_end(directory: Path) -> None:
    """Record that a life begins and that its end is unknown until `write_end`. OperatorError."""
    write_durably(directory / _END_FILE, b" " * _BYTES, mode=_MODE)


def write_end(directory: Path, text: str) -> None:
    """Record that a life has ended, with this text; empty if it was stopped. OperatorError.

    Does nothing if there is no directory.
    """
    if not directory.is_dir():
        return
    end = {"time": time.time(), "text": text[:_TEXT_MAX]}
    data = json.dumps(end, ensure_ascii=False).encode("utf-8", "replace").ljust(_BYTES)
    path = directory / _END_FILE
    try:
        # Overwrite in place: a full disk would refuse a new or a larger file.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, _MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        raise OperatorError(f"cannot write {path}: {describe_os_error(error)}") from None


def describe_last_end(directory: Path) -> str:
    """Return in words how the last life ended; empty if that is unknown, or no node of this release ran there."""
    try:
        data = read_bytes(directory / _END_FILE, "how the node ended")
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
