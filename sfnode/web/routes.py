"""Answer a browser. The answers are read-only: no request changes anything in the node."""

from pathlib import PurePath

import trio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sfnode.page import SERVED, asset
from sfnode.web.change_stream import Viewers
from sfnode.web.page_access import Gate, PageAccess, Recognise

_TYPES = {"": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_STREAM = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]


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
