"""Who gets what from the server of the metrics, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from protocol.errors import OperatorError
from sfnode.metrics import metrics_socket, parse_metrics_address, scrape_server, serve_metrics
from sfnode.status import Status
from tests.support.daemons import free_ports
from tests.support.statuses import STATUS


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[int]:
    (port,) = free_ports(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_metrics, directory, await metrics_socket(f"127.0.0.1:{port}"))
        yield port
        nursery.cancel_scope.cancel()


async def ask(port: int, request: bytes) -> bytes:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(request)
        return b"".join([part async for part in stream])


async def test_server__asked_for_metrics__gives_those_of_the_last_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def last(directory: Path) -> Status:
        assert directory == tmp_path
        return STATUS

    monkeypatch.setattr(scrape_server, "read_status", last)
    async with serving(tmp_path) as port:
        answer = await ask(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
    assert b"\nsfnode_peers 3.0\n" in answer


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"rubbish\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"503"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9_000, b"400"),
    ],
    ids=["elsewhere", "writes", "rubbish", "no_node", "endless"],
)
async def test_server__asked_for_something_else__refuses(request_bytes: bytes, status: bytes, tmp_path: Path) -> None:
    async with serving(tmp_path) as port:
        try:
            answer = await ask(port, request_bytes)
        except trio.BrokenResourceError:  # it has closed before it read all of an endless request
            answer = b"HTTP/1.1 400"
            assert status == b"400"
    assert answer.startswith(b"HTTP/1.1 " + status)


async def test_server__too_many_at_once__cuts_the_one_too_many(tmp_path: Path) -> None:
    async with serving(tmp_path) as port, trio.open_nursery() as nursery:
        waiting = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(8)]
        await trio.sleep(0.05)
        assert await ask(port, b"") == b""
        for stream in waiting:
            nursery.start_soon(stream.aclose)


@pytest.mark.parametrize("text", ["0.0.0.0:9464", "192.0.2.1:9464", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:x", "x:1"])
def test_address__others_could_reach_it_or_it_is_none__says_what_to_write(text: str) -> None:
    with pytest.raises(OperatorError, match=r"--metrics .* write 127\.0\.0\.1:PORT"):
        parse_metrics_address(text)


def test_address__on_loopback__is_taken() -> None:
    assert [parse_metrics_address(text) for text in ("localhost:1", "[::1]:2")] == [("127.0.0.1", 1), ("::1", 2)]


async def test_socket__port_in_use__names_another(tmp_path: Path) -> None:
    async with serving(tmp_path) as port:
        with pytest.raises(OperatorError, match=rf"at 127\.0\.0\.1:{port}: Address already in use\. Name another port"):
            await metrics_socket(f"127.0.0.1:{port}")
