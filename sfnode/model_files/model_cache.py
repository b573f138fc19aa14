"""The cache of models that sfnode has converted or fetched itself: one folder each, which is complete or absent."""

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
from sfnode.storage import disk

_HOME: Final = Path("~/.sfnode/models")
_VARIABLE: Final = "SFNODE_MODELS"  # names another folder
_LEFT_OVER_S: Final = 86_400.0  # an older folder was left by a killed process: no conversion takes a day
_MAKING: Final = ".making-"


def cache_folder() -> Path:
    """Return the folder of converted models: ``SFNODE_MODELS``, or a folder in the user's home."""
    return Path(os.environ.get(_VARIABLE) or _HOME).expanduser()


def name_of(kind: str, title: str, *identity: str) -> str:
    """Return the name of a model's folder, the same for the same ``identity``; ``title`` makes it readable."""
    digest = sha256("\0".join((kind, *identity)).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", title).strip("-.")[:64]
    return f"{kind}-{readable}-{digest}"


def held(name: str) -> Path | None:
    """Return the folder of this name, which is complete, or None if it is not there."""
    folder = cache_folder() / name
    return folder if folder.is_dir() else None


@contextmanager
def work_folder() -> Iterator[Path]:
    """Make a new folder to build a model in; remove it when the block ends. OperatorError if it cannot be written."""
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
        text = f"cannot write to {home}: {disk.describe_os_error(error)}; {_VARIABLE} names another folder"
        raise OperatorError(text) from None


def put(folder: Path, name: str) -> Path:
    """Move a folder from `work_folder` to its name in the cache, as one step, and return its path. OSError.

    If two processes made it at the same time, the first one's folder stays: equal input gives equal bytes.
    """
    disk.sync_folder(folder)
    place = cache_folder() / name
    try:
        folder.rename(place)
    except OSError:
        if not place.is_dir():
            raise
    disk.sync_folder(place.parent)
    return place


def _clear(home: Path) -> None:
    """Remove the folders of processes that were killed."""
    for folder in home.glob(f"{_MAKING}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _LEFT_OVER_S:
                shutil.rmtree(folder, ignore_errors=True)
