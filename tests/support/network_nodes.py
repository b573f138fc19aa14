"""Nodes of the network layer alone, on loopback, for its tests: no ledger, no model, no disk."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from protocol.events import Event, MessageArrived, PeerJoined, PeerLeft
from protocol.wire import Message, PeerId, Records
from sfnode.network.network import Network
from sfnode.network.network_config import NetworkConfig, Timings
from sfnode.network.policy.address_book import PeerRow
from sfnode.network.policy.addresses import Address, parse_listen
from sfnode.network.policy.ip_groups import DEFAULT_ORIGINS, Origins
from sfnode.network.sessions.file_server import FileSource, ServedRun
from sfnode.network.sessions.handshake import own_hello
from sfnode.network.transport.host import Host, SessionHandler
from sfnode.network.transport.link import Link, LinkBrokenError
from sfnode.node.event_inbox import open_inbox
from tests.support.patience import Patience

RUN_ID = bytes(range(32))
MANIFEST = bytes(range(256)) * 400  # 100 KiB: four parts
LOOPBACK = parse_listen("/ip4/127.0.0.1/tcp/0")
QUICK = Timings(hello_s=1.0, ping_interval_s=0.1, dead_s=0.35, write_s=0.5, bye_s=0.5)
CALM = Timings()


@dataclass(frozen=True)
class Memory:
    """A file in memory."""

    data: bytes

    @property
    def total(self) -> int:
        return len(self.data)

    def read(self, offset: int, bytes_max: int) -> bytes:
        return self.data[offset : offset + bytes_max]


def seed(number: int) -> bytes:
    """The identity of test node ``number``."""
    return bytes([number >> 8, number & 255]) * 16


class ReadableNetwork(Network):
    """A network whose inbox is at hand: ``unread`` is what its node has not read yet."""

    def __init__(self, **fields: Any) -> None:
        inbox, self.unread = open_inbox()
        super().__init__(inbox=inbox, **fields)


def network(
    number: int,
    config: NetworkConfig | None = None,
    *,
    basis: FileSource | None = None,
    known_peers: tuple[PeerRow, ...] = (),
    run_id: bytes = RUN_ID,
    record_bytes: int = 0,
) -> ReadableNetwork:
    """A network that does not run yet; by default it listens on a free port of loopback."""
    run = ServedRun(run_id=run_id, manifest_bytes=MANIFEST, record_bytes=record_bytes, find_file=lambda _: basis)
    return network_of(number, run, config, known_peers=known_peers)


def network_of(
    number: int, run: ServedRun, config: NetworkConfig | None = None, *, known_peers: tuple[PeerRow, ...] = ()
) -> ReadableNetwork:
    """The same of a run of the test's own."""
    return ReadableNetwork(
        config=config or NetworkConfig(listen=(LOOPBACK,)),
        identity_seed=seed(number),
        run=run,
        known_peers=known_peers,
    )


def liar(number: int, run_id: bytes, manifest: bytes) -> ReadableNetwork:
    """A network on loopback whose hello names one run, and which serves this manifest, perhaps of another one."""
    config = NetworkConfig(listen=(LOOPBACK,), local_discovery=False)
    run = ServedRun(run_id=run_id, manifest_bytes=manifest, record_bytes=0)
    return ReadableNetwork(config=config, identity_seed=seed(number), run=run)


@dataclass(slots=True)
class Node:
    """A running network that records its events."""

    network: ReadableNetwork
    addresses: tuple[Address, ...]
    scope: trio.CancelScope
    events: list[Event] = field(default_factory=list)
    changed: trio.Event = field(default_factory=trio.Event)
    stopped: trio.Event = field(default_factory=trio.Event)

    @property
    def peer(self) -> PeerId:
        return self.network.peer

    def messages(self) -> list[Message]:
        return [event.message for event in self.events if isinstance(event, MessageArrived)]

    def connected(self) -> list[PeerJoined]:
        return [event for event in self.events if isinstance(event, PeerJoined)]

    def disconnected(self) -> list[PeerLeft]:
        return [event for event in self.events if isinstance(event, PeerLeft)]

    def peers(self) -> set[PeerId]:
        return {neighbour.peer for neighbour in self.network.neighbours()}

    async def record(self) -> None:
        async for event in self.network.unread:
            self.events.append(event)
            if isinstance(event, MessageArrived):
                self.network.conversation.handled(event.peer, event.message, seconds=0.0, news=0)
            self.changed.set()
            self.changed = trio.Event()

    async def stop(self) -> None:
        """Stop politely and wait for the end."""
        self.scope.cancel()
        await self.stopped.wait()


async def start(nursery: trio.Nursery, network: ReadableNetwork, *, is_reading: bool = True) -> Node:
    """Run a network in the nursery; with ``is_reading`` its events are recorded, else they pile up."""

    async def run(task_status: Any) -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as inner:
                addresses: tuple[Address, ...] = await inner.start(network.run)
                node = Node(network=network, addresses=addresses, scope=scope)
                if is_reading:
                    inner.start_soon(node.record)
                task_status.started(node)
        node.stopped.set()

    node: Node = await nursery.start(run)
    return node


async def until(condition: Callable[[], object], *, within_s: float = 5.0) -> None:
    """Wait until the callable is true; TooSlowError says that it never was, within a limit of `Patience`."""
    patience = Patience(within_s, clock=trio.current_time)
    while not condition():
        if patience.is_over():
            raise trio.TooSlowError
        await trio.sleep(0.005)


async def connect_pair(nursery: trio.Nursery, *, timings: Timings = CALM) -> tuple[Node, Node]:
    """A listening node and an outbound-only node that are connected."""
    listener = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,), timings=timings)))
    dialler = await start(nursery, network(2, NetworkConfig(bootstrap=listener.addresses, timings=timings)))
    await until(lambda: listener.connected() and dialler.connected())
    return listener, dialler


def record(number: int, size: int = 100) -> Records:
    """An application message that can be told from others."""
    return Records(request=number, data=bytes(size))


# --- hosts without sessions, to attack with and to be attacked


async def ignore(link: Link) -> None:
    """Accept a session and never read from it."""
    try:
        await trio.sleep_forever()
    finally:
        await link.aclose()


async def echo(link: Link) -> None:
    """Send everything back."""
    try:
        with suppress(LinkBrokenError):
            while data := await link.receive_some(65_536):
                await link.send_all(data)
            await link.send_eof()
    finally:
        await link.aclose()


@asynccontextmanager
async def running_host(
    number: int,
    on_inbound: SessionHandler = echo,
    *,
    is_listening: bool = True,
    origins: Origins = DEFAULT_ORIGINS,
) -> AsyncIterator[Host]:
    """A bare host on loopback."""
    host = Host(identity_seed=seed(number), on_inbound=on_inbound, origins=origins)
    async with host.running((LOOPBACK,) if is_listening else ()):
        yield host


def address_of(host: Host) -> Address:
    """Where to dial it."""
    return replace(host.addresses[0], peer=host.peer)


async def check_echo(dialler: Host, victim: Host) -> None:
    """The victim still serves."""
    link = await dialler.dial(address_of(victim))
    try:
        await link.send_all(b"still there?")
        with trio.fail_after(2.0):
            assert await link.receive_some(100) == b"still there?"
    finally:
        await link.aclose()


def connections(host: Host) -> list[Any]:
    """The live yamux connections of a host."""
    return [connection.muxed_conn for connection in host._swarm.get_connections()]


# --- strangers that speak the protocol by hand

HELLO = own_hello(run_id=RUN_ID, agent="stranger", listen=(), head_step=7)


async def dial(host: Host, node: Node) -> Link:
    """A link to a node, on which nothing has been said yet."""
    return await host.dial(node.addresses[0])


async def dial_from(host: Host, local_host: str, address: Address) -> Link:
    """The same from another address of this machine, which Linux takes for another machine of another network."""
    assert address.peer is not None
    stream = await trio.open_tcp_stream(address.host, address.port, local_address=local_host)
    return await host._upgrade(stream, address.peer)


async def read_to_end(link: Link) -> bytes:
    """All that the other side says until it closes or cuts the connection."""
    received = b""
    with suppress(LinkBrokenError):
        while data := await link.receive_some(65_536):
            received += data
    return received
