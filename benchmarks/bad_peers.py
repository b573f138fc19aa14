"""What one bad peer costs a node before it is cut: computing and memory, for each kind of badness.

    python -m benchmarks.bad_peers

A relay runs in this process; the bad peer is a process of its own, so that the figures are the victim's alone.
Computing is the process's own time, with what it spends idle meanwhile; memory is the growth of its peak.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass
from typing import Final

import trio

from protocol.limits import FRAME_BYTES_MAX
from protocol.wire import encode
from sfnode.network.addresses import parse_address
from sfnode.network.channel import Channel, Timings, Traffic
from sfnode.network.events import NetworkConfig
from sfnode.network.frames import frame
from sfnode.network.greeting import greet, own_hello
from sfnode.network.host import Host
from sfnode.network.link import Link, LinkBrokenError
from sfnode.network.network import Network

RUN_ID: Final = bytes(range(32))
CPU_MS_MAX, MEMORY_KIB_MAX = 50.0, 2_048.0  # the limits (traps: CPU spent on one bad peer before it is cut)
_NESTED = b"\xdc\x03\xff" + b"\x91" * 1_020

AFTER_HELLO: Final[dict[str, bytes]] = {
    "frame of 4 GiB": b"\xff" * 4,
    "not msgpack": frame(b"\xc1" * 64),
    "nested arrays, 64 KiB": frame((_NESTED * 64)[:FRAME_BYTES_MAX]),
    "unknown kind": frame(b"\x91\xcc\xfa"),
    "second hello": frame(encode(own_hello(run_id=RUN_ID, agent="bad", listen=(), head_step=0))),
}
BEFORE_HELLO: Final[dict[str, bytes]] = {
    "garbage instead of hello": bytes(range(200, 256)) * 90,
    "nested arrays instead of hello": frame((_NESTED * 2)[:1_024]),
}
RAW: Final[dict[str, bytes]] = {"HTTP": b"GET / HTTP/1.1\r\n\r\n", "raw garbage": bytes(range(256)) * 500}
KINDS: Final = (*RAW, *BEFORE_HELLO, *AFTER_HELLO, "zeros without end")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one bad peer."""

    kind: str
    cpu_ms: float
    memory_kib: float


async def measure(kinds: tuple[str, ...] = KINDS) -> list[Cost]:
    """One bad peer of each kind after the other, each until it is cut."""
    costs = []
    config = NetworkConfig(listen=("/ip4/127.0.0.1/tcp/0",), neighbours_fixed=True)
    victim = Network(config=config, identity_seed=bytes(31) + b"\x01", run_id=RUN_ID, manifest_bytes=b"manifest")
    async with trio.open_nursery() as nursery:
        (address, *_) = await nursery.start(victim.run)
        nursery.start_soon(_read_events, victim)
        await _attack(address, "HTTP", 0)  # what is loaded at the first connection is no peer's cost
        for number, kind in enumerate(kinds, start=1):
            cpu_s, peak = time.process_time(), _peak_kib()
            await _attack(address, kind, number)
            cost_ms = (time.process_time() - cpu_s) * 1_000
            costs.append(Cost(kind=kind, cpu_ms=cost_ms, memory_kib=_peak_kib() - peak))
        nursery.cancel_scope.cancel()
    return costs


async def _read_events(victim: Network) -> None:
    async for _ in victim.events:
        pass


async def _attack(address: str, kind: str, number: int) -> None:
    command = [sys.executable, "-m", "benchmarks.bad_peers", "attack", address, kind, str(number)]
    with trio.fail_after(60):
        await trio.run_process(command)


def _peak_kib() -> float:
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


# --- the bad peer


async def _be_bad(address: str, kind: str, number: int) -> None:
    """Returns when the victim has cut the connection."""
    target = parse_address(address)
    if kind in RAW:
        await _be_bad_before_noise(target.host, target.port, RAW[kind])
        return
    host = Host(identity_seed=bytes(30) + b"\x02" + bytes([number]), on_inbound=_hang_up)
    async with host.running(()):
        link = await host.dial(target)
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
    channel = Channel(link, Timings(), Traffic())
    await greet(channel, own_hello(run_id=RUN_ID, agent="bad", listen=(), head_step=0))
    if kind in AFTER_HELLO:
        await link.send_all(AFTER_HELLO[kind])
        return
    link._stream.send_window = 1 << 30
    while True:
        await link.send_all(bytes(65_000))


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
        trio.run(_be_bad, arguments[1], arguments[2], int(arguments[3]))
        return 0
    costs = trio.run(measure)
    for cost in costs:
        sys.stdout.write(f"{cost.kind:32} {cost.cpu_ms:8.1f} ms {cost.memory_kib:8.0f} KiB\n")
    return int(any(cost.cpu_ms > CPU_MS_MAX or cost.memory_kib > MEMORY_KIB_MAX for cost in costs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
