"""``sfnode join --web``: serve a page about the node while it runs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import trio

from protocol.ledger import Ledger
from sfnode.node import Daemon
from sfnode.page import (
    TOKEN_FILE,
    LogTail,
    Page,
    PageAddress,
    load_or_create_token,
)


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
    page = Page(daemon.config.data_dir, daemon.manifest, partial(_ledger, daemon), pid=os.getpid(), tail=tail)

    async def serve() -> None:
        listener = listeners.pop() if listeners else replace(address, port=port).listen()  # after a slip
        await serve_page(page, access, listener, daemon.slips)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(daemon.slips.outlive, "page", serve, endings=()))
        yield
        nursery.cancel_scope.cancel()


def _ledger(daemon: Daemon) -> Ledger | None:
    """Return the ledger; None while the daemon still reads the disk."""
    return None if daemon.running is None else daemon.running.node.replica.ledger


def _token(daemon: Daemon, address: PageAddress, port: int) -> str | None:
    """Report where the page is; return the token that browsers need, None on a loopback address."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    where = f"http://{host}:{port}/"
    if address.is_loopback:
        daemon.reporter.event("web", f"the page of this node: {where}", url=where)
        return None
    data_dir = daemon.config.data_dir
    token, is_new = load_or_create_token(data_dir)
    held = f"{where} (a new browser needs ?token=..., from {data_dir.path / TOKEN_FILE})"
    how = f"{where}?token={token}" if is_new else held
    warning = "whoever can read this network can read the page: over the internet, use a tunnel (docs/page.md)"
    daemon.reporter.event("web", f"the page of this node: {how}", warning, url=where)
    return token
