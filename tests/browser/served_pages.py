"""A page that is served from a thread of its own, for tests whose browser blocks the thread that drives it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from sfnode.page import PageAddress
from sfnode.page.node_page import Page
from sfnode.unexpected_errors import Slips
from sfnode.web import PageAccess, serve_page


@contextmanager
def served_in_thread(page: Page) -> Iterator[str]:
    """The page's URL, while the context lasts."""
    listener = PageAddress(host="127.0.0.1", port=None).listen()
    access = PageAccess(host="127.0.0.1", port=listener.getsockname()[1], token=None)
    scope = trio.CancelScope()
    tokens: list[trio.lowlevel.TrioToken] = []
    ready = threading.Event()

    async def serve() -> None:
        tokens.append(trio.lowlevel.current_trio_token())
        ready.set()
        with scope:
            await serve_page(page, access, listener, Slips())

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    ready.wait()
    try:
        yield f"http://127.0.0.1:{access.port}/"
    finally:
        tokens[0].run_sync_soon(scope.cancel)
        thread.join()
