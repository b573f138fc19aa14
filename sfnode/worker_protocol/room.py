"""What room this machine has: main memory, and disk for what is there only while a program runs."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from sfnode.storage import free_disk_bytes

_MEMINFO: Final = Path("/proc/meminfo")
_MOUNTS: Final = Path("/proc/mounts")
_CGROUP: Final = Path("/sys/fs/cgroup")
_IN_MEMORY: Final = ("tmpfs", "ramfs")


def free_memory() -> int | None:
    """Bytes that new programs can have: what the system calls available, within the limit of a container.

    None where the system does not say. Files that the system keeps at hand count as free: it drops them first.
    """
    free = None
    with suppress(OSError, ValueError, KeyError):
        free = 1024 * _numbers(_MEMINFO)["MemAvailable:"]
    with suppress(OSError, ValueError, KeyError):
        limit = int((_CGROUP / "memory.max").read_text("ascii"))
        used = int((_CGROUP / "memory.current").read_text("ascii"))
        files = _numbers(_CGROUP / "memory.stat")
        left = limit - used + files["active_file"] + files["inactive_file"]
        free = left if free is None else min(free, left)
    return free


def _numbers(path: Path) -> dict[str, int]:
    """The lines "NAME NUMBER ..." of a file."""
    rows = (line.split() for line in path.read_text("ascii").splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1}


def temporary_folder() -> Path:
    """Where temporary files go: TMPDIR, or what the system has for it."""
    return Path(tempfile.gettempdir())


def free_disk(folder: Path) -> int:
    """Bytes that files in ``folder`` can have beside the main memory: none where its file system lies in memory."""
    if _file_system(folder) in _IN_MEMORY:
        return 0
    return free_disk_bytes(folder) or 0


def _file_system(folder: Path) -> str:
    """The kind of the file system that ``folder`` is on; empty where the system does not say."""
    real, found = folder.resolve(), (-1, "")
    with suppress(OSError):
        for line in _MOUNTS.read_text("utf-8").splitlines():
            _, point, kind, *_ = line.split()
            if real.is_relative_to(point) and len(point) >= found[0]:  # the last one of a point covers the others
                found = (len(point), kind)
    return found[1]
