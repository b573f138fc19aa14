"""Reports to the operator while a file is fetched from nodes of the run."""

import time
from collections.abc import Callable
from typing import Final

from sfnode.network import DialReport
from sfnode.reporter import Reporter

_PROGRESS_S: Final = 1.0


def progress_of(reporter: Reporter, name: str, what: str) -> Callable[[int, int], None]:
    """Return a function that reports, once a second, the bytes of ``what`` received; the event is NAME_progress."""
    told_s = time.monotonic()

    def show(received: int, total: int) -> None:
        nonlocal told_s
        if received == total or time.monotonic() - told_s >= _PROGRESS_S:
            told_s = time.monotonic()
            text = f"fetching {what}, {received:,} of {total:,} bytes"
            reporter.progress(f"{name}_progress", text, received_bytes=received, total_bytes=total)

    return show


def failures_to(reporter: Reporter, what: str) -> Callable[[DialReport], None]:
    """Return a function that reports a node that could not be used; ``what`` was to be done with it."""

    def show(report: DialReport) -> None:
        text = f"cannot {what} {report.address}: {report.reason}; next try in {report.retry_in_s:.0f} s"
        reporter.event("dial_failed", text, address=report.address, reason=report.reason)

    return show
