"""Who gets what from the server of the metrics, over real sockets."""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing

from protocol.errors import OperatorError
from sfnode import metrics
from sfnode.cli.joining.web_and_metrics import metrics_served
from sfnode.metrics import metrics_socket, parse_metrics_address, serve_metrics
from sfnode.node import Daemon
from sfnode.reporter import Reporter
from sfnode.status import Status, read_status
from sfnode.storage.data_directory import DataDirectory
from sfnode.unexpected_errors import Slips
from tests.support.daemons import free_ports
from tests.support.statuses import STATUS

WHOLE = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def serving(last_status: Callable[[], Status], slips: Slips | None = None) -> AsyncIterator[int]:
    (port,) = free_ports(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_metrics, last_status, await metrics_socket(f"127.0.0.1:{port}"), slips or Slips())
        yield port
        nursery.cancel_scope.cancel()


def none_runs(directory: Path) -> Callable[[], Status]:
    return partial(read_status, DataDirectory(directory))


async def ask(port: int, request: bytes) -> bytes:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(request)
        return b"".join([part async for part in stream])


@pytest.mark.parametrize("target", [b"/metrics", b"/metrics?module=sfnode"])
async def test_server__asked_for_metrics__gives_those_of_the_last_status(target: bytes) -> None:
    async with serving(lambda: STATUS) as port:
        answer = await ask(port, b"GET " + target + b" HTTP/1.1\r\nHost: 127.0.0.1:9464\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
    assert b"\nsfnode_peers 3.0\n" in answer


@pytest.mark.parametrize("target", [b"/metrics", b"/"])
async def test_server__asked_for_the_head_alone__gives_that_of_get(target: bytes) -> None:
    async with serving(lambda: STATUS) as port:
        request = b" %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % target
        head, got = await ask(port, b"HEAD" + request), await ask(port, b"GET" + request)
    assert head == got.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405"),
        (b"rubbish\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nhost: [::1]:9464\r\n\r\n", b"503"),
        (b"GET /metrics HTTP/1.1\r\nHost: evil.org:9464\r\n\r\n", b"421"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"421"),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.org\r\n\r\n", b"421"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9_000, b"400"),
    ],
    ids=["elsewhere", "writes", "rubbish", "no_node", "rebound", "nameless", "two_names", "endless"],
)
async def test_server__asked_for_something_else__refuses(request_bytes: bytes, status: bytes, tmp_path: Path) -> None:
    async with serving(none_runs(tmp_path)) as port:
        try:
            answer = await ask(port, request_bytes)
        except trio.BrokenResourceError:  # it has closed before it read all of an endless request
            answer = b"HTTP/1.1 400"
            assert status == b"400"
    assert answer.startswith(b"HTTP/1.1 " + status)


async def test_server__forty_half_requests__take_no_answer_from_a_whole_one(tmp_path: Path) -> None:
    async with serving(none_runs(tmp_path)) as port:
        halves = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(40)]
        for half in halves:
            await half.send_all(b"GET /metrics HTTP/1.1\r\nHost: loc")
        with trio.fail_after(60):
            assert (await ask(port, WHOLE)).startswith(b"HTTP/1.1 503")
            assert await halves[0].receive_some() == b""  # the oldest have made room
        for half in halves:
            await trio.aclose_forcefully(half)


async def test_server__one_request_meets_a_bug__is_counted_and_the_next_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slips, bugs = Slips(), [KeyError("a bug of ours")]

    def figures(directory: Path) -> bytes:
        if bugs:
            raise bugs.pop()
        return b"HTTP/1.1 200 OK\r\n\r\n"

    monkeypatch.setattr(metrics, "_figures", figures)
    async with serving(none_runs(tmp_path), slips) as port:
        assert await ask(port, WHOLE) == b""
        assert (await ask(port, WHOLE)).startswith(b"HTTP/1.1 200")
    assert (slips.state.count, "a request for the metrics" in slips.state.last) == (1, True)


async def test_server__connection_reset_before_it_is_accepted__is_no_fault_of_ours() -> None:
    slips = Slips()
    async with serving(lambda: STATUS, slips) as port:
        await trio.testing.wait_all_tasks_blocked()
        with socket.create_connection(("127.0.0.1", port)) as reset:
            reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert (await ask(port, WHOLE)).startswith(b"HTTP/1.1 200")
    assert slips.state.count == 0


@pytest.mark.parametrize("text", ["9464", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:x", "x:1"])
def test_address__none__says_what_to_write(text: str) -> None:
    with pytest.raises(OperatorError, match=r"--metrics .* write 127\.0\.0\.1:PORT"):
        parse_metrics_address(text)


async def test_server__open_to_other_machines__answers_to_the_name_that_they_know(tmp_path: Path) -> None:
    """In a Compose file Prometheus asks for `node:9464`."""
    (port,) = free_ports(1)
    async with trio.open_nursery() as nursery:
        listener = await metrics_socket(f"0.0.0.0:{port}")
        nursery.start_soon(serve_metrics, none_runs(tmp_path), listener, Slips())
        assert (await ask(port, b"GET /metrics HTTP/1.1\r\nHost: node:9464\r\n\r\n")).startswith(b"HTTP/1.1 503")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("host", "is_open"), [("127.0.0.1", False), ("0.0.0.0", True)])
async def test_metrics__of_a_node_that_other_machines_reach__are_said_to_have_no_password(
    host: str, is_open: bool, tmp_path: Path
) -> None:
    said, (port,) = io.StringIO(), free_ports(1)
    daemon = SimpleNamespace(
        config=SimpleNamespace(data_dir=DataDirectory(tmp_path)), reporter=Reporter(stream=said), slips=Slips()
    )
    async with metrics_served(cast("Daemon", daemon), f"{host}:{port}"):
        pass
    assert f":{port}/metrics" in said.getvalue() and ("without a password" in said.getvalue()) == is_open


def test_address__on_loopback__is_taken() -> None:
    assert [parse_metrics_address(text) for text in ("localhost:1", "[::1]:2")] == [("127.0.0.1", 1), ("::1", 2)]


async def test_socket__port_in_use__names_another(tmp_path: Path) -> None:
    async with serving(none_runs(tmp_path)) as port:
        with pytest.raises(OperatorError, match=rf"at 127\.0\.0\.1:{port}: Address already in use\. Name another port"):
            await metrics_socket(f"127.0.0.1:{port}")
