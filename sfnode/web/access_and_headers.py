"""Decide who may read a page, from the head of a request and before any other code reads it."""

import hmac
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sfnode.http_guard import is_name_of_ours

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
_NO_TOKEN = (
    "This page needs its token. The node said the whole address, with ?token=..., when it made the token; it is kept "
    "in the file web.token of the node's data directory.\n"
)
_WRONG_NAME = (
    "This page is not served under this name: open it by the IP address that the node said, or as localhost.\n"
)

Client = tuple[str, int]  # IP address and port
Recognise = Callable[[Client], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAccess:
    """Decides which requests a page answers.

    Attributes:
        host: IP address or name that the page is served at.
        port: part of the cookie's name, since browsers send cookies to all ports of a host.
        token: secret that a request must carry; None if only this machine can reach the page.
    """

    host: str
    port: int
    token: str | None

    @property
    def cookie(self) -> str:
        """Return the name of the cookie that holds the token."""
        return f"sfnode_{self.port}"

    def refusal(self, request: Request) -> Response | None:
        """Return the response that refuses or redirects a request; None if the page may answer it."""
        if not is_name_of_ours(request.headers.get("host", ""), self.host):
            return PlainTextResponse(_WRONG_NAME, 421)
        # A page of another site made the browser send the request; following a link does not count.
        is_navigated = request.headers.get("sec-fetch-mode") == "navigate"
        if request.headers.get("sec-fetch-site") == "cross-site" and not is_navigated:
            return PlainTextResponse("Another site asks for this page.\n", 403)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("This page can only be read.\n", 405, {"allow": "GET, HEAD"})
        return None if self.token is None else self._ask(request, self.token)

    def _ask(self, request: Request, token: str) -> Response | None:
        given = request.query_params.get("token")
        if given is not None and _is_equal(given, token):
            # Without the token in the address bar; a cookie that no script can read keeps it.
            response = RedirectResponse("/", 303)
            response.set_cookie(self.cookie, token, max_age=30 * 86_400, httponly=True, samesite="strict")
            return response
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        is_shown = _is_equal(bearer, token) or _is_equal(request.cookies.get(self.cookie, ""), token)
        return None if is_shown else PlainTextResponse(_NO_TOKEN, 401)


def _is_equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


class Gate:
    """Passes permitted requests to ``app``, and adds the security headers to every response.

    ``recognise`` is called with the address and port of a connection on which a request has passed.
    """

    def __init__(self, app: ASGIApp, access: PageAccess, recognise: Recognise) -> None:
        self._app, self._access, self._recognise = app, access, recognise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})  # which becomes 403
        if scope["type"] != "http":
            return
        refusal = self._access.refusal(Request(scope))
        if refusal is None:
            self._recognise(scope["client"])

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = _HEADERS if refusal is None else _HEADERS | {"connection": "close"}
                added = [(name.encode(), value.encode()) for name, value in kept.items()]
                message = {**message, "headers": [*message.get("headers", []), *added]}
            await send(message)

        await (refusal or self._app)(scope, receive, send_guarded)
