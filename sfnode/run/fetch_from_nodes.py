"""Fetch a file from nodes of the run, and report to the operator how far it is."""

import time
from typing import Final

from sfnode.network import Address, DialReport, Download, Wanted, sessions
from sfnode.reporter import Reporter

_PROGRESS_S: Final = 1.0


async def fetch_from_nodes(
    wanted: Wanted, nodes: tuple[Address, ...], reporter: Reporter, what: str, more: str = ""
) -> bytes:
    """Return ``what``, which one of the nodes gives; the event fetching_NAME begins, and ``more`` ends its line.

    NAME_progress follows once a second, and dial_failed for each node that could not be used. OperatorError.
    """
    told_s = time.monotonic()

    def show(received: int, total: int) -> None:
        nonlocal told_s
        if wanted.total and (received == total or time.monotonic() - told_s >= _PROGRESS_S):
            told_s = time.monotonic()
            text = f"fetching {what}, {received:,} of {total:,} bytes"
            reporter.progress(f"{wanted.name}_progress", text, received_bytes=received, total_bytes=total)

    def show_failure(report: DialReport) -> None:
        text = f"cannot reach {report.address}: {report.reason}; next try in {report.retry_in_s:.0f} s"
        reporter.event("dial_failed", text, address=report.address, reason=report.reason)

    size = f", {wanted.total:,} bytes" if wanted.total else ""
    fields = {"bootstrap": list(map(str, nodes)), "total_bytes": wanted.total}
    reporter.event(f"fetching_{wanted.name}", f"asking the bootstrap for {what}{size}{more}", **fields)
    return await sessions.fetch(Download(wanted, show), nodes, on_failure=show_failure)
