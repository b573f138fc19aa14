"""Serves a node's metrics at `GET /metrics`, to this machine only. Read-only, and bounded in time, size and number."""

from __future__ import annotations

import ipaddress
from functools import partial
from pathlib import Path
from typing import Final

import trio

from protocol.errors import OperatorError
from sfnode.metrics.exposition import exposition
from sfnode.status import read_status

METRICS_ADDRESS: Final = "127.0.0.1:9464"  # the port that Prometheus' list gives to exporters of no other kind
_REQUEST_BYTES_MAX: Final = 8_192
_ANSWER_S: Final = 10.0  # Prometheus waits as long by default
_AT_ONCE_MAX: Final = 8
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


def parse_metrics_address(text: str) -> tuple[str, int]:
    """IP address and port of HOST:PORT. OperatorError unless it is one of this machine's loopback addresses."""
    host, _, port = text.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    is_port = port.isascii() and port.isdecimal() and 0 < int(port) < 65536
    if not (is_loopback and is_port):
        raise OperatorError(
            f"--metrics {text!r} is not an address of this machine alone: write 127.0.0.1:PORT. For a Prometheus on "
            "another machine, put a proxy that asks for a password in front, or a tunnel"
        )
    return host, int(port)


async def metrics_socket(address: str) -> trio.SocketListener:
    """Listens there. OperatorError when the address is no good, or taken."""
    host, port = parse_metrics_address(address)
    try:
        (listener,) = await trio.open_tcp_listeners(port, host=host, backlog=_AT_ONCE_MAX)
    except OSError as error:
        reason = error.strerror or error
        text = f"the metrics cannot be served at {address}: {reason}. Name another port with --metrics 127.0.0.1:PORT"
        raise OperatorError(text) from None
    return listener


async def serve_metrics(directory: Path, listener: trio.SocketListener) -> None:
    """Answer with what the node on ``directory`` last wrote of itself, until cancelled."""
    limiter = trio.CapacityLimiter(_AT_ONCE_MAX)
    await trio.serve_listeners(partial(_answer, directory, limiter), [listener])


async def _answer(directory: Path, limiter: trio.CapacityLimiter, stream: trio.SocketStream) -> None:
    """One request, then the end; whoever is slow, or one too many, is cut off."""
    with trio.move_on_after(_ANSWER_S):
        async with stream:
            try:
                limiter.acquire_on_behalf_of_nowait(stream)
            except trio.WouldBlock:
                return
            try:
                await stream.send_all(await _reply(directory, await _request_line(stream)))
            except trio.BrokenResourceError:
                return
            finally:
                limiter.release_on_behalf_of(stream)


async def _request_line(stream: trio.SocketStream) -> bytes:
    """First line of a whole request; empty where it is too long or breaks off."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = await stream.receive_some(_REQUEST_BYTES_MAX)
        received += part
        if not part or len(received) > _REQUEST_BYTES_MAX:
            return b""
    return received.partition(b"\r\n")[0]


async def _reply(directory: Path, line: bytes) -> bytes:
    match line.split(b" "):
        case [b"GET", b"/metrics", _]:
            return await trio.to_thread.run_sync(_figures, directory)
        case [b"GET", _, _]:
            return _response("404 Not Found", b"the metrics are at /metrics\n")
        case [_, _, _]:
            return _response("405 Method Not Allowed", b"GET /metrics\n", "Allow: GET")
    return _response("400 Bad Request", b"GET /metrics\n")


def _figures(directory: Path) -> bytes:
    try:
        return _response("200 OK", exposition(read_status(directory)))
    except OperatorError as error:  # the node has only begun, or hangs: Prometheus shows it as down
        return _response("503 Service Unavailable", f"{error}\n".encode())


def _response(status: str, body: bytes, *more: str) -> bytes:
    sizes = (f"Content-Type: {_TEXT}", f"Content-Length: {len(body)}", "Connection: close")
    return "\r\n".join((f"HTTP/1.1 {status}", *sizes, *more, "", "")).encode() + body
