"""Whether a disk has room for the files of a model, asked before the first byte of them is fetched."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from protocol.run import FileSpec
from sfnode.model_files.pieces import part_of

_BLOCK_BYTES: Final = 512  # what stat counts in


def free_bytes(folder: Path) -> int | None:
    """Return how much the disk of ``folder`` takes; None where the system does not say."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def bytes_to_come(folder: Path, files: Iterable[FileSpec]) -> int:
    """Return how much the disk still has to take for these files: all but what an earlier life has left of them."""
    return sum(max(0, file.bytes - _held_bytes(part_of(folder, file))) for file in files)


def _held_bytes(part: Path) -> int:
    """What a file takes on the disk: less than its length where it has holes."""
    try:
        return part.lstat().st_blocks * _BLOCK_BYTES
    except (OSError, AttributeError):  # there is none yet; Windows counts no blocks
        return 0
