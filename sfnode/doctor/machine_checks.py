"""Check this machine: the disk's free space and speed, how many files may be open, and the clock."""

import os
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from sfnode.doctor.findings import Finding, fail, ok, unknown, warning
from sfnode.network import allowed_files, bounds, connections_max
from sfnode.reporter import counted, format_seconds
from sfnode.storage import disk

_FREE_BYTES_MIN = 100 << 20
_FREE_BYTES_GOOD = 1 << 30
_FSYNC_S_GOOD = 0.1  # two for each own update

_BUILT_S = datetime(2026, 1, 1, tzinfo=UTC).timestamp()  # no release is older
_LATEST_S = datetime(2100, 1, 1, tzinfo=UTC).timestamp()
_AHEAD_S_MAX = 30.0


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


def check_files() -> Finding:
    """Check whether the limit on open files, raised as at a node's start, allows `CONNECTIONS_MAX` connections."""
    files, connections = allowed_files(), connections_max()
    text = f"at most {files}, with {connections} connections among them"
    if connections < bounds.CONNECTIONS_MAX:
        advice = "raise the hard limit (`ulimit -Hn`, or limits.conf) where many are to dial this node"
        return warning("open files", f"{text}; other nodes take {bounds.CONNECTIONS_MAX}", advice)
    return ok("open files", text)


def check_clock(offsets_s: list[float]) -> Finding:
    """Check that the clock shows the time: the protocol does not need it, but downloads and logs do.

    ``offsets_s``: how far the clock of each peer is ahead of ours.
    """
    advice = "set it (timedatectl set-ntp true)"
    if not offsets_s:
        now = time.time()
        shown = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        if not _BUILT_S <= now <= _LATEST_S:
            return fail("clock", f"it shows {shown}", f"{advice}: downloads check certificates by it")
        return ok("clock", f"it shows {shown}; compared with nothing")
    middle = sorted(offsets_s)[len(offsets_s) // 2]
    size = f"{abs(middle):.1f} s" if abs(middle) < 60.0 else format_seconds(abs(middle))
    seen = f"it is {size} {'behind' if middle > 0 else 'ahead of'} the clocks of {counted(len(offsets_s), 'peer')}"
    if abs(middle) > _AHEAD_S_MAX:
        return warning("clock", seen, f"{advice}, unless you trust it more than theirs: logs cannot be compared")
    return ok("clock", seen)
