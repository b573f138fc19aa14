"""Places of those who fetch manifest and files: who gets one, and for how long."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from protocol.wire import Bye, FilePart, FileRequest, ManifestPart, ManifestRequest, Message, Ping, Pong
from sfnode.network import bounds
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy.ip_groups import Origins
from sfnode.network.sessions.bandwidth_limit import Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.file_download import Download, Wanted, fetch
from sfnode.network.sessions.file_server import FILES_PROTOCOL
from sfnode.network.sessions.handshake import FULL, OBSERVER_RUN_ID, RefusedError, exchange_hello, own_hello
from sfnode.network.transport.host import Host
from tests.support.network_nodes import (
    CALM,
    LOOPBACK,
    MANIFEST,
    Node,
    dial_from,
    network,
    read_to_end,
    running_host,
    start,
    until,
)

CROWDED, ELSEWHERE = "127.1.0.1", "127.2.0.1"


class Basis:
    """A file of one part."""

    data = b"basis"
    total = len(data)

    def read(self, offset: int, bytes_max: int) -> bytes:
        return self.data[offset : offset + bytes_max]


BASIS = FileRequest(sha256=hashlib.sha256(Basis.data).digest(), offset=0)


@pytest.fixture(autouse=True)
def _nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "OBSERVER_WAIT_S", 0.05)


@pytest.fixture(autouse=True)
def _needs_many_loopbacks() -> None:
    with socket.socket() as probe:
        try:
            probe.bind((ELSEWHERE, 0))
        except OSError:
            pytest.skip("needs Linux: every address of 127.0.0.0/8 is this machine, so that networks can be told apart")


@asynccontextmanager
async def observer(number: int, local_host: str, node: Node) -> AsyncIterator[Channel]:
    """Somebody at this address who holds a place."""
    async with running_host(number, is_listening=False) as host:
        yield await ask_for_place(host, local_host, node)


async def ask_for_place(host: Host, local_host: str, node: Node) -> Channel:
    """RefusedError when there is none."""
    channel = Channel(await dial_from(host, local_host, node.addresses[0]), CALM, Traffic())
    await exchange_hello(channel, own_hello(run_id=OBSERVER_RUN_ID, agent="", listen=(), head_step=0))
    channel.trust()
    return channel


async def answer(channel: Channel, request: Message) -> Message | None:
    """What comes back; None when the connection ends."""
    await channel.send_now(request)
    with trio.fail_after(5.0):
        return await channel.receive_untrusted()


async def is_refused(number: int, local_host: str, node: Node) -> bool:
    """Whether somebody at this address finds no place."""
    async with running_host(number, is_listening=False) as host:
        try:
            await ask_for_place(host, local_host, node)
        except RefusedError as error:
            return error.reason == FULL
        return False


async def test_places__one_address_asks_for_all__gets_two_and_another_address_is_served() -> None:
    async with trio.open_nursery() as nursery:
        node = await start(nursery, network(1))
        async with observer(11, CROWDED, node), observer(12, CROWDED, node):
            assert await is_refused(13, CROWDED, node)
            assert not await is_refused(14, "127.1.0.2", node)  # private addresses count each alone
            with trio.fail_after(5.0):
                assert await fetch(Download(Wanted.manifest(None)), node.addresses) == MANIFEST
        await until(lambda: node.network._files.has_room_for(CROWDED))
        nursery.cancel_scope.cancel()


async def test_places__one_stranger_fetches_one_file_after_another__holds_one_download() -> None:
    async with trio.open_nursery() as nursery:
        node = await start(nursery, network(1, basis=Basis()))
        async with observer(11, CROWDED, node) as many:
            for number in range(bounds.OBSERVERS_PER_CROWD_MAX + 1):
                assert isinstance(await answer(many, FileRequest(sha256=bytes([number]) * 32, offset=0)), FilePart)
            async with observer(12, CROWDED, node) as other:
                assert isinstance(await answer(other, BASIS), FilePart)
        nursery.cancel_scope.cancel()


async def test_places__three_join_at_once_from_one_host__the_third_waits_for_a_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fault once: the third was told "full", and kept away for a minute."""
    monkeypatch.setattr(bounds, "OBSERVER_WAIT_S", 5.0)
    found: list[bool] = []

    async def join() -> None:
        found.append(await is_refused(13, CROWDED, node))

    async with trio.open_nursery() as nursery:
        node = await start(nursery, network(1))
        async with observer(11, CROWDED, node):
            async with observer(12, CROWDED, node):
                nursery.start_soon(join)
                await until(lambda: node.network._files._waiting._taken.total() > 0)
                assert found == []
            await until(lambda: found == [False])
        nursery.cancel_scope.cancel()


async def test_places__private_networks_are_limited__one_network_gets_two() -> None:
    config = NetworkConfig(listen=(LOOPBACK,), origins=Origins(is_private_limited=True))
    async with trio.open_nursery() as nursery:
        node = await start(nursery, network(1, config))
        async with observer(11, CROWDED, node), observer(12, "127.1.0.2", node):
            assert await is_refused(13, "127.1.0.3", node)
            assert not await is_refused(14, ELSEWHERE, node)
        nursery.cancel_scope.cancel()


async def test_places__files_take_all_that_they_may__one_is_left_for_the_manifest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "OBSERVERS_MAX", 3)
    async with trio.open_nursery() as nursery:
        node = await start(nursery, network(1, basis=Basis()))
        async with observer(11, CROWDED, node) as first, observer(12, CROWDED, node) as second:
            for channel in (first, second):
                assert isinstance(await answer(channel, BASIS), FilePart)
            async with observer(13, ELSEWHERE, node) as third:
                assert isinstance(await answer(third, ManifestRequest(offset=0)), ManifestPart)
                assert await answer(third, BASIS) == Bye(reason=FULL)
        nursery.cancel_scope.cancel()


async def test_place__pings_and_asks_for_nothing__is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "OBSERVER_IDLE_S", 2.0)
    async with trio.open_nursery() as nursery:
        node = await start(nursery, network(1))
        async with observer(11, CROWDED, node) as busy, observer(12, CROWDED, node) as idle:
            for _ in range(4):
                await trio.sleep(0.4)
                assert await answer(idle, Ping(nonce=7)) == Pong(nonce=7)
                assert isinstance(await answer(busy, ManifestRequest(offset=0)), ManifestPart)
            with trio.fail_after(1.6):
                assert await read_to_end(idle.link) == b""
            assert isinstance(await answer(busy, ManifestRequest(offset=0)), ManifestPart)
        nursery.cancel_scope.cancel()


async def test_place__asks_for_the_manifests_last_byte_again_and_again__is_answered_more_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "SHORT_ANSWERS_BURST", 3)
    monkeypatch.setattr(bounds, "SHORT_ANSWERS_PER_S", 10.0)
    async with trio.open_nursery() as nursery:
        node = await start(nursery, network(1))
        async with observer(11, CROWDED, node) as channel:
            started_s = trio.current_time()
            for _ in range(7):
                assert isinstance(await answer(channel, ManifestRequest(offset=len(MANIFEST) - 1)), ManifestPart)
            assert trio.current_time() - started_s >= 0.25
        nursery.cancel_scope.cancel()


async def test_neighbour__strangers_hold_all_places__gets_its_files_and_no_more_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "OBSERVERS_MAX", 1)
    async with trio.open_nursery() as nursery:
        node = await start(nursery, network(1, basis=Basis()))
        neighbour = await start(nursery, network(2, NetworkConfig(bootstrap=node.addresses)))
        await until(node.connected)
        session = neighbour.network.sessions.get(node.peer)
        assert session is not None
        async with observer(11, CROWDED, node):
            answers = []
            for _ in range(bounds.FILES_PER_NEIGHBOUR_MAX + 1):
                link = await neighbour.network._host.open_beside(session.channel.link, FILES_PROTOCOL)
                assert link is not None
                channel = Channel(link, CALM, Traffic())
                channel.trust()
                answers.append(await answer(channel, BASIS))
        assert [type(each) for each in answers] == [*[FilePart] * bounds.FILES_PER_NEIGHBOUR_MAX, Bye]
        nursery.cancel_scope.cancel()
