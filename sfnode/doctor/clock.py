"""Check this machine's clock: against sense, or against the clocks of the bootstraps that have answered."""

import time
from datetime import UTC, datetime

from sfnode.doctor.findings import Finding, fail, ok, warning
from sfnode.reporter import counted, format_seconds

_BUILT_S = datetime(2026, 1, 1, tzinfo=UTC).timestamp()  # no release is older
_LATEST_S = datetime(2100, 1, 1, tzinfo=UTC).timestamp()
_AHEAD_S_MAX = 30.0


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
