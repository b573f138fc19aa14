"""Check the disk of a data directory: whether it has room, and how fast a write is safe."""

import os
import tempfile
import time
from pathlib import Path

from sfnode.doctor.findings import Finding, fail, ok, unknown, warning
from sfnode.storage import disk

_FREE_BYTES_MIN = 100 << 20
_FREE_BYTES_GOOD = 1 << 30
_FSYNC_S_GOOD = 0.1  # two for each own update


def existing_part(folder: Path) -> Path:
    """Return the folder, or the nearest folder above it that exists."""
    path = folder.absolute()
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path


def check_space(folder: Path, needed_bytes: int) -> Finding:
    """Check the free space for the node's state; ``needed_bytes``: final size of the ledger; 0: not known."""
    place = existing_part(folder)
    free = disk.free_disk_bytes(place)
    if free is None:
        return unknown("disk space", f"the system does not say what is free on the disk of {place}")
    text = f"{free / 1e9:.1f} GB free on the disk of {place}"
    wanted = max(_FREE_BYTES_MIN, needed_bytes)
    if free < wanted:
        return fail(
            "disk space", text, f"free some: the ledger may take {wanted / 1e6:,.0f} MB; or use another --data-dir"
        )
    if free < max(_FREE_BYTES_GOOD, 2 * needed_bytes):
        return warning("disk space", text, "keep an eye on it: a node stops when its disk is full")
    return ok("disk space", text)


def check_writing(folder: Path) -> Finding:
    """Time a write and fsync of a page where the node keeps its state, as it does for each own update."""
    place = existing_part(folder)
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".sfnode-doctor-") as file:
            file.write(bytes(4_096))
            file.flush()
            started_s = time.perf_counter()
            os.fsync(file.fileno())
            taken_s = time.perf_counter() - started_s
    except OSError as error:
        advice = f"make {place} writable for this user, free some space, or use another --data-dir"
        return fail("disk writing", f"cannot write in {place}: {error.strerror}", advice)
    text = f"a page is safe on the disk of {place} after {1_000 * taken_s:.1f} ms"
    if taken_s > _FSYNC_S_GOOD:
        return warning(
            "disk writing", text, "each own step waits for it twice: a local disk is better than a network's"
        )
    return ok("disk writing", text)
