"""The cache of models that sfnode has converted or fetched itself: one folder each, which is complete or absent."""

import os
import re
from hashlib import sha256
from pathlib import Path

from sfnode.storage import disk

_HOME = Path("~/.sfnode/models")
VARIABLE = "SFNODE_MODELS"  # names another folder


def cache_folder() -> Path:
    """Return the folder of converted models: ``SFNODE_MODELS``, or a folder in the user's home."""
    return Path(os.environ.get(VARIABLE) or _HOME).expanduser()


def name_of(kind: str, title: str, *identity: str) -> str:
    """Return the name of a model's folder, the same for the same ``identity``; ``title`` makes it readable."""
    digest = sha256("\0".join((kind, *identity)).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", title).strip("-.")[:64]
    return f"{kind}-{readable}-{digest}"


def held(name: str) -> Path | None:
    """Return the folder of this name, which is complete, or None if it is not there."""
    folder = cache_folder() / name
    return folder if folder.is_dir() else None


def put(folder: Path, name: str) -> Path:
    """Move a folder from `conversion.work_folder` to its name in the cache, as one step, and return its path. OSError.

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
