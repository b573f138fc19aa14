"""The sockets of a page: few at a time, none that waits for ever, and none that can hold up the node's end."""

from __future__ import annotations

import logging
import socket
from typing import Final

import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState
from hypercorn.utils import wrap_app

from sfnode.event_log import log
from sfnode.page import Page
from sfnode.web.access import PageAccess
from sfnode.web.app import page_app
from sfnode.web.viewers import VIEWERS_MAX, Viewers

_CONNECTIONS_MAX: Final = 4 * VIEWERS_MAX  # a browser opens up to six
_SEND_S: Final = 10.0  # whoever takes nothing for so long has gone: asleep, or out of reach
_IDLE_S: Final = 5.0


async def serve_page(page: Page, access: PageAccess, listener: socket.socket) -> None:
    """Serve it until cancelled, then close all at once. Whatever goes wrong is said in the log, and ends nothing."""
    viewers = Viewers(page)
    connections = _Connections(page_app(viewers, access))
    with listener:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(viewers.run)
            await connections.accept(trio.SocketListener(trio.socket.from_stdlib_socket(listener)))


class _Connections:
    """hypercorn's own loop would take any number of them, and waits for a browser that takes nothing even when it is
    cancelled; so its protocol is run here, on streams that can be closed."""

    def __init__(self, app: object) -> None:
        self._app: AppWrapper = wrap_app(app, wsgi_max_body_size=0, mode="asgi")  # type: ignore[arg-type]
        self._config = Config()
        self._config.errorlog = logging.getLogger("sfnode.web.http")
        self._config.keep_alive_timeout = _IDLE_S
        self._config.include_server_header = False
        self._context = WorkerContext(None)
        self._open: set[_Stream] = set()

    async def accept(self, listener: trio.SocketListener) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._close_when_cancelled)
            await trio.serve_listeners(self._serve, [listener])

    async def _close_when_cancelled(self) -> None:
        """What hypercorn shields from being cancelled ends with its socket."""
        try:
            await trio.sleep_forever()
        finally:
            for stream in self._open:
                stream.socket.close()

    async def _serve(self, accepted: trio.SocketStream) -> None:
        if len(self._open) >= _CONNECTIONS_MAX:
            return await trio.aclose_forcefully(accepted)
        stream = _Stream(accepted)
        self._open.add(stream)
        try:
            await TCPServer(self._app, self._config, self._context, ConnectionState({}), stream)  # type: ignore[arg-type]
        except Exception:
            log(logging.ERROR, "page_connection_failed", is_failure=True)
        finally:
            self._open.discard(stream)
            await trio.aclose_forcefully(accepted)


class _Stream:
    """A connection as hypercorn sees it; a send that nobody takes ends it."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.socket = stream.socket
        self.receive_some = stream.receive_some
        self.send_eof = stream.send_eof
        self.aclose = stream.aclose

    async def send_all(self, data: bytes) -> None:
        """BrokenResourceError when it takes longer than `_SEND_S`."""
        with trio.move_on_after(_SEND_S) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            await trio.aclose_forcefully(self._stream)
            raise trio.BrokenResourceError("nobody takes what is sent")
