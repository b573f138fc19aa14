"""Serve a page on sockets that are few, bounded in time, and closed at once when the node stops."""

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState
from hypercorn.utils import wrap_app
from starlette.applications import Starlette

from sfnode.http_guard import Stranger, Strangers
from sfnode.page import Page
from sfnode.unexpected_errors import Slips
from sfnode.web.change_stream import VIEWERS_MAX, Viewers
from sfnode.web.page_access import Client, PageAccess, Recognise
from sfnode.web.routes import page_app

_CONNECTIONS_MAX = 4 * VIEWERS_MAX  # a browser opens up to six
_SEND_S = 10.0  # a browser that reads nothing for so long is asleep or out of reach
_REFUSAL_S = 1.0  # a stranger gets a few hundred bytes, which fit into any socket's buffer
_IDLE_S = 5.0


async def serve_page(page: Page, access: PageAccess, listener: socket.socket, slips: Slips) -> None:
    """Serve ``page`` until cancelled, then close every connection. A slip ends only its connection."""
    viewers = Viewers(page, slips)
    connections = _Connections(partial(page_app, viewers, access), slips)
    with listener:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(viewers.run)
            await connections.accept(trio.SocketListener(trio.socket.from_stdlib_socket(listener)))


class _Connections:
    """Accepts and bounds the connections of a page, and runs hypercorn's protocol on them.

    hypercorn's own loop is not used: it takes any number of connections, and when it is cancelled it still waits for
    a browser that reads nothing. The streams here can be closed.
    """

    def __init__(self, app: Callable[[Recognise], Starlette], slips: Slips) -> None:
        self._app: AppWrapper = wrap_app(app(self._recognise), wsgi_max_body_size=0, mode="asgi")  # type: ignore[arg-type]
        self._config = Config()
        self._config.errorlog = logging.getLogger("sfnode.web.http")
        self._config.keep_alive_timeout = _IDLE_S
        self._config.include_server_header = False
        self._context = WorkerContext(None)
        self._open: dict[Client, _Stream] = {}
        self._strangers = Strangers()
        self._slips = slips

    async def accept(self, listener: trio.SocketListener) -> None:
        """Serve connections until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._close_when_cancelled)
            await trio.serve_listeners(self._serve, [listener])

    async def _close_when_cancelled(self) -> None:
        """Close all sockets when cancelled; this ends what hypercorn shields from cancellation."""
        try:
            await trio.sleep_forever()
        finally:
            for stream in self._open.values():
                stream.socket.close()

    async def _serve(self, accepted: trio.SocketStream) -> None:
        """Serve one connection; treat it as a stranger until a request on it passes the gate."""
        try:
            with self._slips.contained("a connection of the page", endings=()), suppress(OSError):  # it has gone
                await self._answer(accepted)
        finally:
            await trio.aclose_forcefully(accepted)

    async def _answer(self, accepted: trio.SocketStream) -> None:
        host, port, *_ = accepted.socket.getpeername()
        client = host, port
        # `Strangers` makes room among strangers.
        known = sum(stream.stranger.is_known for stream in self._open.values())
        if known < _CONNECTIONS_MAX and len(self._open) < 2 * _CONNECTIONS_MAX:
            with self._strangers.place(client[0]) as stranger, self._listed(client, _Stream(accepted, stranger)) as it:
                await TCPServer(self._app, self._config, self._context, ConnectionState({}), it)  # type: ignore[arg-type]

    @contextmanager
    def _listed(self, client: Client, stream: "_Stream") -> Iterator["_Stream"]:
        self._open[client] = stream
        try:
            yield stream
        finally:
            if self._open.get(client) is stream:
                del self._open[client]

    def _recognise(self, client: Client) -> None:
        """Treat the connection as known: a permitted request came on it."""
        if client in self._open:
            self._strangers.recognise(self._open[client].stranger)


class _Stream:
    """A connection as hypercorn uses it; a send that takes too long closes it."""

    def __init__(self, stream: trio.SocketStream, stranger: Stranger) -> None:
        self._stream, self.stranger = stream, stranger
        self.socket = stream.socket
        self.receive_some = stream.receive_some
        self.send_eof = stream.send_eof
        self.aclose = stream.aclose

    async def send_all(self, data: bytes) -> None:
        """Send ``data``. BrokenResourceError after `_SEND_S`, or after `_REFUSAL_S` for strangers."""
        with trio.move_on_after(_SEND_S if self.stranger.is_known else _REFUSAL_S) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            await trio.aclose_forcefully(self._stream)
            raise trio.BrokenResourceError("nobody takes what is sent")
