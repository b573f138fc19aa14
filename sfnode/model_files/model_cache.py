"""Where models lie that sfnode has converted or fetched itself: one folder each, whole or not there at all."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from protocol.errors import OperatorError
from sfnode.storage import describe_os_error, sync_folder

_HOME: Final = Path("~/.sfnode/models")
_VARIABLE: Final = "SFNODE_MODELS"  # names another folder
_LEFT_OVER_S: Final = 86_400.0  # what a killed process was making; nothing takes a day
_MAKING: Final = ".making-"


def cache_folder() -> Path:
    """Where converted models lie: ``SFNODE_MODELS``, or a folder of the user's own."""
    return Path(os.environ.get(_VARIABLE) or _HOME).expanduser()


def name_of(kind: str, title: str, *identity: str) -> str:
    """The name of a model's folder: the same ``identity`` has the same name; ``title`` is for people."""
    digest = sha256("\0".join((kind, *identity)).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", title).strip("-.")[:64]
    return f"{kind}-{readable}-{digest}"


def held(name: str) -> Path | None:
    """The folder of this name, if it is there: then it is complete."""
    folder = cache_folder() / name
    return folder if folder.is_dir() else None


@contextmanager
def work_folder() -> Iterator[Path]:
    """A new folder to make a model in, which is gone when the block ends. OperatorError when it cannot be written."""
    home = cache_folder()
    try:
        home.mkdir(parents=True, exist_ok=True)
        _clear(home)
        work = home / f"{_MAKING}{secrets.token_hex(8)}"
        work.mkdir(mode=0o700)
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        text = f"cannot write to {home}: {describe_os_error(error)}; {_VARIABLE} names another folder"
        raise OperatorError(text) from None


def put(folder: Path, name: str) -> Path:
    """Let a folder of `work_folder` be the one of this name: there is either none or a complete one, always. OSError.

    Of two processes that made it at once, one is first: equal input gives equal bytes.
    """
    sync_folder(folder)
    place = cache_folder() / name
    try:
        folder.rename(place)
    except OSError:
        if not place.is_dir():
            raise
    sync_folder(place.parent)
    return place


def _clear(home: Path) -> None:
    """Remove what processes have left that were killed."""
    for folder in home.glob(f"{_MAKING}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _LEFT_OVER_S:
                shutil.rmtree(folder, ignore_errors=True)
