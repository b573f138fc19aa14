"""Serve a page on sockets that are few, bounded in time, and closed at once when the node stops.

The answers are read-only: no request changes anything in the node. One of them is a stream of changes: all sections
first, then those that have changed. Nothing is queued for a slow browser: it gets the newest sections when it is ready
for more.
"""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import PurePath

import trio
from hypercorn.config import Config
from hypercorn.protocol import ProtocolWrapper
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState
from hypercorn.utils import wrap_app
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sfnode.http_guard import Stranger, Strangers
from sfnode.page import SERVED, Page, asset
from sfnode.unexpected_errors import Slips
from sfnode.web.access_and_headers import Client, Gate, PageAccess, Recognise

VIEWERS_MAX = 8
_LOOK_S = 1.0
_PAUSES = 20  # times what a look takes, is the pause after it: the node's own work waits while it looks
_SILENCE_S = 20.0  # then a comment is sent: proxies and browsers give up on a silent stream
_CONNECTIONS_MAX = 4 * VIEWERS_MAX  # a browser opens up to six
_SEND_S = 10.0  # a browser that reads nothing for so long is asleep or out of reach
_REFUSAL_S = 1.0  # a stranger gets a few hundred bytes, which fit into any socket's buffer
_IDLE_S = 5.0

_TYPES = {"": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_STREAM = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]


class Viewers:
    """Refreshes a page while at least one browser watches: once a second, and less often where that takes long."""

    def __init__(self, page: Page, slips: Slips) -> None:
        self._page, self._slips = page, slips
        self._texts: dict[str, str] = {}
        self._changed: dict[str, int] = {}  # section -> number of the look that found it new
        self.looks = 0
        self._news = trio.Event()
        self._watching = 0

    async def run(self) -> None:
        """Refresh the sections again and again until cancelled."""
        while True:
            started_s = trio.current_time()
            self._look()
            await trio.sleep(max(_LOOK_S, _PAUSES * (trio.current_time() - started_s)))

    @contextmanager
    def place(self) -> Iterator[bool]:
        """Hold a place among the viewers while the context lasts; yield False if all are taken."""
        if self._watching >= VIEWERS_MAX:
            yield False
            return
        self._watching += 1
        try:
            if self._watching == 1:
                self._look()
            yield True
        finally:
            self._watching -= 1

    def event_since(self, look: int) -> bytes:
        """Return a server-sent event with the sections changed since ``look``, or a comment if none has changed."""
        fresh = [f'"{name}":{self._texts[name]}' for name, changed in self._changed.items() if changed > look]
        return f"data: {{{','.join(fresh)}}}\n\n".encode() if fresh else b": still here\n\n"

    async def wait_beyond(self, look: int) -> None:
        """Wait until a look after ``look`` finds a change, or until a keep-alive is due."""
        with trio.move_on_after(_SILENCE_S):
            while self.looks == look:
                await self._news.wait()

    def _look(self) -> None:
        """Refresh the sections if somebody watches; after a slip the next look tries again."""
        with self._slips.contained("the page", endings=()):
            sections = self._page.sections() if self._watching else {}
            texts = {name: json.dumps(section, separators=(",", ":")) for name, section in sections.items()}
            fresh = [name for name, text in texts.items() if self._texts.get(name) != text]
            if fresh:
                self.looks += 1
                self._texts = texts
                self._changed |= dict.fromkeys(fresh, self.looks)
                self._news.set()
                self._news = trio.Event()


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
        page = app(self._recognise)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            with slips.contained("a request of the page", endings=()):
                await page(scope, receive, send)

        self._app: AppWrapper = wrap_app(answer, wsgi_max_body_size=0, mode="asgi")  # type: ignore[arg-type]
        self._config = Config()
        self._config.errorlog = None
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
        if known >= _CONNECTIONS_MAX or len(self._open) >= 2 * _CONNECTIONS_MAX:
            return
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # else a laptop that sleeps keeps its place for a quarter of an hour
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1_000 * _SEND_S))
        with self._strangers.place(host) as stranger:
            stream = self._open[client] = _Stream(accepted, stranger)
            try:
                await _PageServer(self._app, self._config, self._context, ConnectionState({}), stream)  # type: ignore[arg-type]
            finally:
                if self._open.get(client) is stream:
                    del self._open[client]

    def _recognise(self, client: Client) -> None:
        """Treat the connection as known: a permitted request came on it."""
        if client in self._open:
            self._strangers.recognise(self._open[client].stranger)


class _PageServer(TCPServer):
    """Speaks HTTP/1.1 alone: hypercorn lets strangers change to HTTP/2, and some frames fail before the gate."""

    def __setattr__(self, name: str, value: object) -> None:
        """Make the protocol, which hypercorn sets when the connection begins, ignore requests to change it."""
        if isinstance(value, ProtocolWrapper):
            value.protocol._check_protocol = _ignore  # type: ignore[method-assign, union-attr]
        super().__setattr__(name, value)


async def _ignore(_: object) -> None:
    pass


class _Stream:
    """A connection as hypercorn uses it; a send that takes too long closes it."""

    def __init__(self, stream: trio.SocketStream, stranger: Stranger) -> None:
        self._stream, self.stranger = stream, stranger
        self.socket = stream.socket
        self.receive_some = stream.receive_some
        self.send_eof = stream.send_eof
        self.aclose = stream.aclose

    async def send_all(self, data: bytes) -> None:
        """Send ``data``. BrokenResourceError after `_SEND_S`, after `_REFUSAL_S` for strangers, or while it closes."""
        with trio.move_on_after(_SEND_S if self.stranger.is_known else _REFUSAL_S) as scope:
            try:
                await self._stream.send_all(data)
            except trio.BusyResourceError as error:  # hypercorn closes it at once where a second request waits
                raise trio.BrokenResourceError("the connection is being closed") from error
        if scope.cancelled_caught:
            await trio.aclose_forcefully(self._stream)
            raise trio.BrokenResourceError("nobody takes what is sent")


def page_app(viewers: Viewers, access: PageAccess, recognise: Recognise) -> Starlette:
    """Return the application that serves the page, its files and its stream of changes behind a `Gate`."""
    files = [Route(f"/{name}", _file) for name in ("", *SERVED)]
    routes = [Route("/events", _Events(viewers), methods=["GET"]), *files]
    return Starlette(routes=routes, middleware=[Middleware(Gate, access=access, recognise=recognise)])


async def _file(request: Request) -> Response:
    name = request.url.path.removeprefix("/")
    return Response(asset(name), media_type=_TYPES[PurePath(name).suffix])


class _Events:
    """Serves the stream of changes: each browser takes one place until it disconnects."""

    def __init__(self, viewers: Viewers) -> None:
        self._viewers = viewers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._viewers.place() as is_free:
            if not is_free:
                full = PlainTextResponse("Too many browsers look at this page.\n", 503, {"retry-after": "30"})
                await full(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": _STREAM})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body"})
                return
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tell, send)
                while (await receive())["type"] != "http.disconnect":
                    pass
                nursery.cancel_scope.cancel()

    async def _tell(self, send: Send) -> None:
        seen = 0
        while True:
            event, seen = self._viewers.event_since(seen), self._viewers.looks
            await send({"type": "http.response.body", "body": event, "more_body": True})
            await self._viewers.wait_beyond(seen)
