"""``sfnode join --web`` and ``--metrics``: serve a page and figures for Prometheus while the node runs."""

import ipaddress
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import trio

from protocol.ledger import Ledger
from sfnode.http_guard import url_to_open
from sfnode.metrics import metrics_socket, parse_metrics_address, serve_metrics
from sfnode.node import Daemon
from sfnode.page import TOKEN_FILE, LogTail, Page, PageAddress, load_or_create_token
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

    host, port = parse_metrics_address(where)
    url, is_shut = url_to_open(host, port, "metrics"), ipaddress.ip_address(host).is_loopback
    warning = [] if is_shut else ["whoever can reach that port reads them, without a password (docs/metrics.md)"]
    daemon.reporter.event("metrics", f"metrics for Prometheus: {url}", *warning, url=url)
    async with _outliving(daemon, "metrics", serve):
        yield


@asynccontextmanager
async def page_served(daemon: Daemon, where: str | None) -> AsyncIterator[None]:
    """Serve the page of ``daemon`` at ``where``, HOST:PORT, while the context lasts; None: nowhere.

    Raises OperatorError at the beginning.
    """
    if where is None:
        yield
        return
    from sfnode.web import PageAccess, serve_page

    address = PageAddress.parse(where)
    listeners = [address.listen()]
    port = listeners[0].getsockname()[1]
    access = PageAccess(host=address.host, port=port, token=_token(daemon, address, port))
    tail = LogTail()
    daemon.reporter.listeners.append(tail.take)  # only now, so that the page's log does not show the token

    def ledger() -> Ledger | None:
        return None if daemon.running is None else daemon.running.node.replica.ledger  # None while it reads the disk

    def said() -> Mapping[str, str]:
        return {} if daemon.running is None else daemon.running.network.names.names()

    page = Page(daemon.config.data_dir, daemon.manifest, ledger, pid=os.getpid(), tail=tail, said=said)

    async def serve() -> None:
        listener = listeners.pop() if listeners else replace(address, port=port).listen()  # after a slip
        await serve_page(page, access, listener, daemon.slips)

    async with _outliving(daemon, "page", serve):
        yield


@asynccontextmanager
async def _outliving(daemon: Daemon, name: str, serve: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run a server while the context lasts, again after each slip."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(daemon.slips.outlive, name, serve, endings=()))
        yield
        nursery.cancel_scope.cancel()


def _token(daemon: Daemon, address: PageAddress, port: int) -> str | None:
    """Report where the page is; return the token that browsers need, None on a loopback address."""
    where = url_to_open(address.host, port)
    if address.is_loopback:
        daemon.reporter.event("web", f"the page of this node: {where}", url=where)
        return None
    data_dir = daemon.config.data_dir
    token, is_new = load_or_create_token(data_dir)
    held = f"{where} (a new browser needs ?token=..., from {data_dir.path / TOKEN_FILE})"
    how = f"{where}?token={token}" if is_new else held
    elsewhere = "on another machine, open it by this one's address, if that port is open to others"
    warning = "whoever can read this network can read the page: over the internet, use a tunnel (docs/page.md)"
    daemon.reporter.event("web", f"the page of this node: {how}", elsewhere, warning, url=where)
    return token
