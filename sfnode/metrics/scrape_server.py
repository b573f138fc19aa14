"""Serve a node's metrics at `GET /metrics`. Read-only, and bounded in time, size and number.

An exception in one connection ends only that connection, and counts as a slip.
"""

import ipaddress
from collections.abc import Callable
from contextlib import suppress

import trio

from protocol.errors import OperatorError
from sfnode.http_guard import Strangers, is_name_of_ours
from sfnode.metrics.prometheus_text import exposition
from sfnode.status import Status
from sfnode.unexpected_errors import Slips

METRICS_ADDRESS = "127.0.0.1:9464"  # Prometheus' list gives this port to exporters without one of their own
_REQUEST_BYTES_MAX = 8_192
_ANSWER_S = 10.0  # Prometheus waits as long by default
_AT_ONCE_MAX = 8
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def parse_metrics_address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT into IP address and port. OperatorError if it is none."""
    host, _, port = text.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdecimal() and 0 < int(port) < 65536
    with suppress(ValueError):
        if is_port:
            return str(ipaddress.ip_address(host)), int(port)
    raise OperatorError(
        f"--metrics {text!r} is not an IP address and a port: write 127.0.0.1:PORT, or 0.0.0.0:PORT in a container"
    )


def is_shut(address: str) -> bool:
    """Return whether only this machine can read metrics that are served there."""
    return ipaddress.ip_address(parse_metrics_address(address)[0]).is_loopback


async def metrics_socket(address: str) -> trio.SocketListener:
    """Open a listener at ``address``. OperatorError if the address is invalid or in use."""
    host, port = parse_metrics_address(address)
    try:
        (listener,) = await trio.open_tcp_listeners(port, host=host, backlog=_AT_ONCE_MAX)
    except OSError as error:
        reason = error.strerror or error
        text = f"the metrics cannot be served at {address}: {reason}. Name another port with --metrics 127.0.0.1:PORT"
        raise OperatorError(text) from None
    return listener


async def serve_metrics(last_status: Callable[[], Status], listener: trio.SocketListener, slips: Slips) -> None:
    """Serve what ``last_status`` returns, until cancelled. It may raise OperatorError, and runs in a thread."""
    is_open = not ipaddress.ip_address(listener.socket.getsockname()[0]).is_loopback
    server = _Server(last_status, slips, is_open)
    await trio.serve_listeners(server.answer, [listener])


class _Server:
    """Answers one request on each connection, and closes it."""

    def __init__(self, last_status: Callable[[], Status], slips: Slips, is_open: bool) -> None:
        self._last_status, self._slips = last_status, slips
        self._is_open = is_open  # to other machines, which know this one by a name that it does not know
        self._strangers = Strangers()
        self._limiter = trio.CapacityLimiter(_AT_ONCE_MAX)

    async def answer(self, stream: trio.SocketStream) -> None:
        """Serve one connection; cut it off if it is slow or exceeds the limit."""
        with self._slips.contained("a request for the metrics", endings=()), suppress(trio.BrokenResourceError):
            async with stream:
                request = None
                with self._strangers.place(stream.socket.getpeername()[0]):
                    request = await _request(stream)
                if request is not None:
                    await self._reply(stream, *request)

    async def _reply(self, stream: trio.SocketStream, line: bytes, host: str) -> None:
        """Answer within `_ANSWER_S`; send nothing if `_AT_ONCE_MAX` answers are under way."""
        with suppress(trio.WouldBlock), trio.move_on_after(_ANSWER_S):
            self._limiter.acquire_on_behalf_of_nowait(stream)
            try:
                await stream.send_all(await self._response_to(line, host))
            finally:
                self._limiter.release_on_behalf_of(stream)

    async def _response_to(self, line: bytes, host: str) -> bytes:
        if not (self._is_open or is_name_of_ours(host)):
            text = b"the metrics are not served under this name: ask 127.0.0.1 or localhost\n"
            return _response("421 Misdirected Request", text)
        match line.split(b" "):
            case [b"HEAD", *rest]:
                as_get = await self._response_to(b" ".join((b"GET", *rest)), host)
                return as_get[: as_get.index(b"\r\n\r\n") + 4]
            case [b"GET", b"/metrics", _]:
                return await trio.to_thread.run_sync(_figures, self._last_status)
            case [b"GET", _, _]:
                return _response("404 Not Found", b"the metrics are at /metrics\n")
            case [_, _, _]:
                return _response("405 Method Not Allowed", b"GET /metrics\n", "Allow: GET, HEAD")
        return _response("400 Bad Request", b"GET /metrics\n")


async def _request(stream: trio.SocketStream) -> tuple[bytes, str]:
    """Read a whole request; return its first line and its Host header, which is empty unless there is exactly one.

    The first line is empty if the request is too long or breaks off.
    """
    received = b""
    while b"\r\n\r\n" not in received:
        part = await stream.receive_some(_REQUEST_BYTES_MAX)
        received += part
        if not part or len(received) > _REQUEST_BYTES_MAX:
            return b"", "localhost"
    line, *headers = received.partition(b"\r\n\r\n")[0].split(b"\r\n")
    named = [header.partition(b":") for header in headers]
    hosts = [value.strip().decode("latin-1") for name, _, value in named if name.strip().lower() == b"host"]
    return line, hosts[0] if len(hosts) == 1 else ""


def _figures(last_status: Callable[[], Status]) -> bytes:
    try:
        return _response("200 OK", exposition(last_status()))
    except OperatorError as error:  # the node has just started, or hangs: Prometheus shows it as down
        return _response("503 Service Unavailable", f"{error}\n".encode())


def _response(status: str, body: bytes, *more: str) -> bytes:
    sizes = (f"Content-Type: {_TEXT}", f"Content-Length: {len(body)}", "Connection: close")
    return "\r\n".join((f"HTTP/1.1 {status}", *sizes, *more, "", "")).encode() + body
