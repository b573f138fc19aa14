"""What one bad peer costs a node before it is cut: computing and memory, for each kind of badness.

    python -m benchmarks.bad_peers

A relay runs in this process, network and core; the bad peer is a process of its own, so that the figures are the
victim's alone. Computing is the process's own time, with what it spends idle meanwhile; memory is the growth of its
peak. Where several connections make the attack, the figures are of all of them. Half-open connections (a SYN flood in
the narrow sense) never leave the system's own table: they cost the process nothing, and are not measured.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import trio

from benchmarks.sample_runs import Shape, manifest_of, seed_of_author, tiny_tensors
from protocol.crypto import Signer
from protocol.events import DropPeer, Event, MessageArrived, SendMessage
from protocol.framing import frame
from protocol.ledger import EnvelopeCodec
from protocol.limits import FRAME_BYTES_MAX
from protocol.node import Node, NodeConfig
from protocol.state import Replica
from protocol.wire import Records, encode
from sfnode.network import (
    Address,
    Channel,
    Host,
    Link,
    LinkBrokenError,
    Network,
    NetworkConfig,
    ServedRun,
    Timings,
    Traffic,
    handshake,
    policy,
)
from sfnode.node import open_inbox

RUN: Final = manifest_of(Shape(authors=500, steps=64), tiny_tensors())
RUN_ID: Final = RUN.run_id
CPU_MS_MAX, MEMORY_KIB_MAX = 50.0, 2_048.0  # the limits (traps: CPU spent on one bad peer before it is cut)
_NESTED = b"\xdc\x03\xff" + b"\x91" * 1_020

AFTER_HELLO: Final[dict[str, bytes]] = {
    "frame of 4 GiB": b"\xff" * 4,
    "not msgpack": frame(b"\xc1" * 64),
    "nested arrays, 64 KiB": frame((_NESTED * 64)[:FRAME_BYTES_MAX]),
    "unknown kind": frame(b"\x91\xcc\xfa"),
    "second hello": frame(encode(handshake.own_hello(run_id=RUN_ID, agent="bad", listen=(), head_step=0))),
}
BEFORE_HELLO: Final[dict[str, bytes]] = {
    "garbage instead of hello": bytes(range(200, 256)) * 90,
    "nested arrays instead of hello": frame((_NESTED * 2)[:1_024]),
}
RAW: Final[dict[str, bytes]] = {
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "raw garbage": bytes(range(256)) * 500,
    "not a byte": b"",
}
SLOW, FORGED, ENDLESS = "hello byte by byte", "500 forged signatures", "zeros without end"
CROWDS: Final = {"200 connections without a byte": ("not a byte", 200), "28 x zeros without end": (ENDLESS, 28)}
KINDS: Final = (*RAW, *BEFORE_HELLO, SLOW, *AFTER_HELLO, FORGED, ENDLESS, *CROWDS)
_BYTE_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCost:
    """What one bad peer cost, or several ``connections``; ``seconds`` until the last was cut."""

    kind: str
    connections: int
    cpu_ms: float
    memory_kib: float
    seconds: float


async def measure(kinds: tuple[str, ...] = KINDS) -> list[PeerCost]:
    """One bad peer of each kind after the other, each until it is cut."""
    costs = []
    config = NetworkConfig(listen=(policy.parse_listen("/ip4/127.0.0.1/tcp/0"),), neighbours_fixed=True)
    inbox, unread = open_inbox()
    run = ServedRun(run_id=RUN_ID, manifest_bytes=b"manifest", record_bytes=EnvelopeCodec(RUN).record_bytes)
    victim = Network(config=config, identity_seed=bytes(31) + b"\x01", run=run, inbox=inbox)
    async with trio.open_nursery() as nursery:
        (address, *_) = await nursery.start(victim.run)
        nursery.start_soon(_live, victim, unread)
        await _attack(address, "HTTP", 0)  # what is loaded at the first connection is no peer's cost
        for number, kind in enumerate(kinds, start=1):
            costs.append(await _measure_one(address, kind, number))
        nursery.cancel_scope.cancel()
    return costs


async def _measure_one(address: Address, kind: str, number: int) -> PeerCost:
    cpu_s, peak, start_s = time.process_time(), _peak_kib(), trio.current_time()
    await _attack(address, kind, number)
    return PeerCost(
        kind=kind,
        connections=CROWDS[kind][1] if kind in CROWDS else 1,
        cpu_ms=(time.process_time() - cpu_s) * 1_000,
        memory_kib=_peak_kib() - peak,
        seconds=trio.current_time() - start_s,
    )


async def _live(victim: Network, events: trio.MemoryReceiveChannel[Event]) -> None:
    """What the daemon does with events, without a disk."""
    signer = Signer(b"victim".ljust(32, b"."))
    node = Node(RUN, signer, NodeConfig(is_training=False), Replica(RUN))
    async for event in events:
        for effect in node.handle(event, int(trio.current_time() * 1_000)):
            if isinstance(effect, SendMessage):
                victim.sessions.send(effect.peer, effect.message)
            elif isinstance(effect, DropPeer):
                victim.sessions.drop(effect.peer, reason=effect.reason)
        if isinstance(event, MessageArrived):
            victim.conversation.handled(event.peer, event.message, seconds=0.0, news=0)


async def _attack(address: Address, kind: str, number: int) -> None:
    command = [sys.executable, "-m", "benchmarks.bad_peers", "attack", str(address), kind, str(number)]
    with trio.fail_after(60):
        await trio.run_process(command)


def _peak_kib() -> float:
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


# --- the bad peer


async def _be_bad_together(address: Address, kind: str, number: int) -> None:
    """Returns when the victim has cut all connections."""
    each_kind, count = CROWDS.get(kind, (kind, 1))
    async with trio.open_nursery() as nursery:
        for index in range(count):
            nursery.start_soon(_be_bad, address, each_kind, bytes([number, index]))


async def _be_bad(address: Address, kind: str, identity: bytes) -> None:
    if kind in RAW:
        await _be_bad_before_noise(address.host, address.port, RAW[kind])
        return
    host = Host(identity_seed=bytes(30) + identity, on_inbound=_hang_up)
    async with host.running(()):
        link = await host.dial(address)
        try:
            await _misbehave(link, kind)
            while await link.receive_some(65_536):
                pass
        except LinkBrokenError:
            pass
        finally:
            await link.aclose()


async def _misbehave(link: Link, kind: str) -> None:
    if kind in BEFORE_HELLO:
        await link.send_all(BEFORE_HELLO[kind])
        return
    hello = handshake.own_hello(run_id=RUN_ID, agent="bad", listen=(), head_step=0)
    if kind == SLOW:
        for byte in frame(encode(hello)):
            await link.send_all(bytes([byte]))
            await trio.sleep(_BYTE_S)
        return
    channel = Channel(link, Timings(), Traffic())
    await handshake.exchange_hello(channel, hello)
    if kind in AFTER_HELLO:
        await link.send_all(AFTER_HELLO[kind])
        return
    if kind == FORGED:
        await channel.send_now(Records(request=0, data=b"".join(_forged())))
        return
    link._stream.send_window = 1 << 30
    while True:
        await link.send_all(bytes(65_000))


def _forged() -> Iterator[bytes]:
    """Records that are right in all but the signature, of 500 authors."""
    codec = EnvelopeCodec(RUN)
    scalars = (1,) * RUN.method.scalars
    for author in range(500):
        record = codec.seal(Signer(seed_of_author(author)), 0, scalars).record
        yield record[:-1] + bytes([record[-1] ^ 1])


async def _be_bad_before_noise(host: str, port: int, data: bytes) -> None:
    async with await trio.open_tcp_stream(host, port) as stream:
        try:
            await stream.send_all(data)
            while await stream.receive_some(65_536):
                pass
        except trio.BrokenResourceError:
            pass


async def _hang_up(link: Link) -> None:
    await link.aclose()


def main(arguments: list[str]) -> int:
    """A table; exit code 1 when one kind costs more than it may."""
    if arguments[:1] == ["attack"]:
        trio.run(_be_bad_together, policy.parse_address(arguments[1]), arguments[2], int(arguments[3]))
        return 0
    costs = trio.run(measure)
    for cost in costs:
        sys.stdout.write(f"{cost.kind:32} {cost.cpu_ms:8.1f} ms {cost.memory_kib:8.0f} KiB {cost.seconds:6.1f} s\n")
    return int(any(_is_too_dear(cost) for cost in costs))


def _is_too_dear(cost: PeerCost) -> bool:
    return cost.cpu_ms > CPU_MS_MAX * cost.connections or cost.memory_kib > MEMORY_KIB_MAX * cost.connections


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
