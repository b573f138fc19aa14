"""Free main memory of this machine, and free disk for temporary files."""

import tempfile
from contextlib import suppress
from pathlib import Path

from sfnode.storage import disk

_MEMINFO = Path("/proc/meminfo")
_MOUNTS = Path("/proc/mounts")
_CGROUP = Path("/sys/fs/cgroup")
_IN_MEMORY = ("tmpfs", "ramfs")


def free_memory() -> int | None:
    """Return the bytes that new programs can have: the system's available memory, within a container's limit.

    None if the system does not say. Cached files count as free: the system drops them first.
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
    """Return the numbers in the lines "NAME NUMBER ..." of a file."""
    rows = (line.split() for line in path.read_text("ascii").splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1}


def temporary_folder() -> Path:
    """Return the folder for temporary files: TMPDIR, or the system's default."""
    return Path(tempfile.gettempdir())


def free_disk(folder: Path) -> int:
    """Return the bytes that files in ``folder`` can take outside main memory; 0 if its file system is in memory."""
    real, depth, kind = folder.resolve(), -1, ""
    with suppress(OSError):
        for line in _MOUNTS.read_text("utf-8").splitlines():
            _, point, mounted, *_ = line.split()
            if real.is_relative_to(point) and len(point) >= depth:  # the last mount on a point hides the others
                depth, kind = len(point), mounted
    return 0 if kind in _IN_MEMORY else disk.free_disk_bytes(folder) or 0
