"""Whether a disk has room for the files of a model; checked before the first byte is fetched."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from protocol.run import FileSpec
from sfnode.model_files.pieces import part_of

_BLOCK_BYTES: Final = 512  # what stat counts in


def free_bytes(folder: Path) -> int | None:
    """Return the free bytes of the disk of ``folder``; None if the system does not say."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def bytes_to_come(folder: Path, files: Iterable[FileSpec]) -> int:
    """Return how many bytes these files will still take: their lengths less what partial files already occupy."""
    return sum(max(0, file.bytes - _held_bytes(part_of(folder, file))) for file in files)


def _held_bytes(part: Path) -> int:
    """Return the bytes that a file occupies on the disk: fewer than its length if it has holes."""
    try:
        return part.lstat().st_blocks * _BLOCK_BYTES
    except (OSError, AttributeError):  # there is no such file yet; Windows has no block counts
        return 0
