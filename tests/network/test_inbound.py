"""Inbound places of a real node: who gives way when it is full, and how many strangers of one network may knock."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from protocol.framing import FrameParser, frame
from protocol.limits import FRAME_BYTES_MAX
from protocol.wire import Bye, PeerId, Ping, Records, decode_untrusted, encode
from sfnode.network import bounds
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy import inbound_eviction
from sfnode.network.policy.addresses import Address
from sfnode.network.policy.ip_groups import Origins
from sfnode.network.sessions.handshake import FULL, GIVE_WAY
from sfnode.network.transport import host as host_module
from sfnode.network.transport.host import Host
from sfnode.network.transport.link import Link
from tests.support.network_nodes import (
    HELLO,
    LOOPBACK,
    Node,
    address_of,
    dial,
    network,
    read_to_end,
    running_host,
    start,
    until,
)


@pytest.fixture(autouse=True)
def _needs_many_loopbacks() -> None:
    with socket.socket() as probe:
        try:
            probe.bind(("127.2.0.1", 0))
        except OSError:
            pytest.skip("needs Linux: every address of 127.0.0.0/8 is this machine, so that networks can be told apart")


@asynccontextmanager
async def guest(number: int, local_host: str, node: Node, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Link]:
    """A neighbour that dials from this address and says hello."""

    async def connect(address: Address, *_others: object) -> trio.SocketStream:
        return await trio.open_tcp_stream(address.host, address.port, local_address=local_host)

    monkeypatch.setattr(host_module, "_connect", connect)
    async with running_host(number, is_listening=False) as host:
        link = await dial(host, node)
        await link.send_all(frame(encode(HELLO)))
        yield link


async def last_words(link: Link) -> str:
    """The reason in the bye that the node sends."""
    parser, reason = FrameParser(FRAME_BYTES_MAX), None
    with trio.fail_after(4.0):
        while reason is None:
            while (payload := parser.next_payload()) is None:
                parser.feed_untrusted(await link.receive_some(65_536))
            message = decode_untrusted(payload)
            reason = message.reason if isinstance(message, Bye) else None
    assert reason is not None
    return reason


async def test_full_node__newcomers_of_other_networks__displace_the_crowd_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbound_eviction, "PROTECTED_OLD", 1)
    monkeypatch.setattr(inbound_eviction, "PROTECTED_USEFUL", 0)
    async with trio.open_nursery() as nursery, AsyncExitStack() as guests:
        node = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,), inbound_max=3)))

        async def arrive(number: int, local_host: str) -> Link:
            return await guests.enter_async_context(guest(number, local_host, node, monkeypatch))

        crowd = []
        for number in range(1, 4):
            crowd.append(await arrive(10 + number, f"127.1.0.{number}"))
            await until(_has(node, number))
        assert await last_words(await arrive(14, "127.1.0.4")) == FULL
        await arrive(15, "127.2.0.1")
        assert await last_words(crowd[2]) == GIVE_WAY
        await arrive(16, "127.3.0.1")
        assert await last_words(crowd[1]) == GIVE_WAY
        assert await last_words(await arrive(17, "127.4.0.1")) == FULL
        await until(_has(node, 3))
        assert _peer_of(crowd[0], node)
        nursery.cancel_scope.cancel()


def _has(node: Node, neighbours: int) -> Callable[[], bool]:
    return lambda: len(node.peers()) == neighbours


def _peer_of(link: Link, node: Node) -> bool:
    own = link.muxed.secured_conn.local_peer
    return PeerId(str(own)) in node.peers()


async def test_full_node__most_useful_neighbour__keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbound_eviction, "PROTECTED_OLD", 0)
    monkeypatch.setattr(inbound_eviction, "PROTECTED_USEFUL", 1)
    async with trio.open_nursery() as nursery:
        node = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,), inbound_max=2)))
        async with (
            guest(11, "127.1.0.1", node, monkeypatch) as idle,
            guest(12, "127.1.0.2", node, monkeypatch) as useful,
        ):
            await until(lambda: len(node.connected()) == 2)
            youngest = PeerId(str(useful.muxed.secured_conn.local_peer))
            node.network.conversation.handled(youngest, Ping(nonce=1), seconds=0.0, news=5)
            await useful.send_all(frame(encode(Records(request=0, data=b""))))
            async with guest(13, "127.2.0.1", node, monkeypatch):
                assert await last_words(idle) == GIVE_WAY
        nursery.cancel_scope.cancel()


async def test_full_node__peers_that_it_dialled_dial_in__take_no_places_beyond_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each freed its outbound place for the next one, and so any number came in."""
    monkeypatch.setattr(bounds, "SIMULTANEOUS_S", -1.0)

    async def welcome(link: Link) -> None:
        await link.send_all(frame(encode(HELLO)))
        await read_to_end(link)
        await link.aclose()

    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        hosts = [await stack.enter_async_context(running_host(number, welcome)) for number in range(11, 14)]
        bootstrap = tuple(map(address_of, hosts))
        config = NetworkConfig(listen=(LOOPBACK,), bootstrap=bootstrap, inbound_max=1, neighbours_fixed=True)
        node = await start(nursery, network(1, config))
        await until(_has(node, 3))
        refused: list[str] = []

        async def dial_in(host: Host) -> None:
            link = await dial(host, node)
            await link.send_all(frame(encode(HELLO)))
            refused.append(await last_words(link))

        for host in hosts:
            nursery.start_soon(dial_in, host)
        await until(lambda: len(refused) == 2 and node.network.statistics().sessions_inbound == 1)
        assert refused == [FULL, FULL] and len(node.peers()) == 3
        nursery.cancel_scope.cancel()


async def test_one_network__dials_in__gets_a_quarter_of_the_places(monkeypatch: pytest.MonkeyPatch) -> None:
    async with trio.open_nursery() as nursery:
        config = NetworkConfig(listen=(LOOPBACK,), inbound_max=4, origins=Origins(is_private_limited=True))
        node = await start(nursery, network(1, config))
        async with guest(11, "127.1.0.1", node, monkeypatch):
            await until(lambda: len(node.peers()) == 1)
            async with guest(12, "127.1.0.2", node, monkeypatch) as same_network:
                assert await last_words(same_network) == FULL
            async with guest(13, "127.2.0.1", node, monkeypatch):
                await until(lambda: len(node.peers()) == 2)
        nursery.cancel_scope.cancel()


async def test_strangers__of_one_network_say_nothing__the_next_is_cut_and_another_network_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "STRANGERS_PER_GROUP_MAX", 3)
    origins = Origins(is_private_limited=True)
    async with running_host(1, origins=origins) as victim, trio.open_nursery() as nursery:
        port = address_of(victim).port

        async def knock(local_host: str) -> trio.SocketStream:
            return await trio.open_tcp_stream("127.0.0.1", port, local_address=local_host)

        strangers = [await knock(f"127.1.0.{number}") for number in range(1, 4)]
        with trio.fail_after(2.0):
            async with await knock("127.1.0.9") as one_too_many:
                assert await one_too_many.receive_some(100) == b""
        other = await knock("127.2.0.1")
        await other.send_all(b"\x13/multistream/1.0.0\n")
        with trio.fail_after(2.0):
            assert b"/multistream/" in await other.receive_some(100)
        for stream in [*strangers, other]:
            await stream.aclose()
        nursery.cancel_scope.cancel()
