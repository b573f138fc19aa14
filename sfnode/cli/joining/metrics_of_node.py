"""``sfnode join --metrics``: figures for Prometheus, for as long as the node runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from sfnode.metrics import metrics_socket, serve_metrics
from sfnode.reporter import Reporter


@asynccontextmanager
async def metrics_served(directory: Path, where: str | None, reporter: Reporter) -> AsyncIterator[None]:
    """While the context lasts, serve the node's metrics at ``where``, HOST:PORT; None: nowhere. OperatorError."""
    if where is None:
        yield
        return
    listener = await metrics_socket(where)
    url = f"http://{where}/metrics"
    reporter.event("metrics", f"metrics for Prometheus: {url}", url=url)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_metrics, directory, listener)
        yield
        nursery.cancel_scope.cancel()
