"""How the last life of a node ended, for whoever asks later: `sfnode status`, where no node runs any more."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Final

from protocol.errors import OperatorError
from sfnode.storage.files import describe_os_error, read_bytes, write_durably

_END_FILE: Final = "end.json"
_BYTES: Final = 4_096  # written when the node starts, so that a full disk can still take its last words
_TEXT_MAX: Final = 600  # characters, of at most six bytes each in JSON
_MODE: Final = 0o600


def expect_end(directory: Path) -> None:
    """A life begins: until `write_end`, its end has not been told. OperatorError."""
    write_durably(directory / _END_FILE, b" " * _BYTES, mode=_MODE)


def write_end(directory: Path, text: str) -> None:
    """A life has ended, with this text; empty where it was stopped. OperatorError.

    Nothing is done where there is no directory.
    """
    if not directory.is_dir():
        return
    end = {"time": time.time(), "text": text[:_TEXT_MAX]}
    data = json.dumps(end, ensure_ascii=False).encode("utf-8", "replace").ljust(_BYTES)
    path = directory / _END_FILE
    try:
        # Over what is there: neither a new file nor a larger one, which a full disk would refuse.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, _MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        raise OperatorError(f"cannot write {path}: {describe_os_error(error)}") from None


def describe_last_end(directory: Path) -> str:
    """How the last life ended, in words; empty where no node of this release has run there, or nobody can tell."""
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
