"""``sfnode join --metrics``: serve figures for Prometheus while the node runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio

from sfnode.metrics import metrics_socket, serve_metrics
from sfnode.node import Daemon
from sfnode.status import read_status


@asynccontextmanager
async def metrics_served(daemon: Daemon, where: str | None) -> AsyncIterator[None]:
    """Serve the node's metrics at ``where``, HOST:PORT, while the context lasts; None: nowhere.

    Raises OperatorError at the beginning. Later failures of the server do not reach the node.
    """
    if where is None:
        yield
        return
    listeners = [await metrics_socket(where)]

    async def serve() -> None:
        listener = listeners.pop() if listeners else await metrics_socket(where)  # open another one after a slip
        await serve_metrics(partial(read_status, daemon.config.data_dir), listener, daemon.slips)

    url = f"http://{where}/metrics"
    daemon.reporter.event("metrics", f"metrics for Prometheus: {url}", url=url)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(daemon.slips.outlive, "metrics", serve, endings=()))
        yield
        nursery.cancel_scope.cancel()
