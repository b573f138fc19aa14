"""Bytes that say nothing, each of which keeps a node busy.

    python -m tests.attacks.cheap_frames KIND MULTIADDR SECONDS

sends one kind as fast as it goes. It prints 0 when it begins, and after that how many bytes it has sent.
"""

from __future__ import annotations

import os
import secrets
import struct
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import click
import trio
import trio.lowlevel
from libp2p.exceptions import BaseLibp2pError

from protocol.errors import Reject
from sfnode.children.child_program import Program
from sfnode.network import bounds
from sfnode.network.network_config import Timings
from sfnode.network.policy.addresses import parse_address
from sfnode.network.sessions.bandwidth_limit import Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.handshake import OBSERVER_RUN_ID, RefusedError, exchange_hello, own_hello
from sfnode.network.transport.host import Host
from sfnode.network.transport.link import Link, LinkBrokenError
from tests.attacks.cheap_keys import slowness
from tests.attacks.doors import ATTACKER, NEVER_S, Spent, in_words, link_from, manifest_s
from tests.attacks.outcome import Outcome
from tests.attacks.relay import Relay, running_relay
from tests.support.fork_server import start_child

_DATA, _WINDOW_UPDATE, _PING = range(3)  # kinds of yamux frames
_SYN, _ACK, _RST = 1, 2, 8  # flags
_AT_ONCE: Final = 500  # frames in one write
_STREAMS: Final = 8
_PING_BYTES: Final = 32
_SHORT: Final = ("pongs", "identify", "first words of Noise")
_AGAIN_S: Final = 0.05
_CPU_MAX: Final = {False: 0.12, True: 0.25}  # of a core, long and short: 64 handshakes take a quarter of a second
_JOINED_S_MAX: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameCost:
    """What one kind cost: the victim's share of a core, a joiner's time (None: in vain), the attacker's bytes."""

    cpu: float
    joined_s: float | None
    bytes_per_s: float

    def __str__(self) -> str:
        return f"{100 * self.cpu:.0f} % of a core, {in_words(self.joined_s)}"


def cheap_frames(is_short: bool) -> Outcome:
    """One address sends control frames, empty frames, first words of Noise, and asks who we are, again and again."""
    with running_relay() as victim:
        return trio.run(_attack, victim, is_short)


async def _attack(victim: Relay, is_short: bool) -> Outcome:
    kinds, lasts_s = (_SHORT, 1.0) if is_short else (tuple(KINDS), 10.0)
    cpu_max = _CPU_MAX[is_short] * slowness()
    before = await _measured(victim, lasts_s)
    found = []
    for kind in kinds:
        found.append(await _cost_of(kind, victim, lasts_s))
        click.echo(f"    {kind}: {found[-1]}, {found[-1].bytes_per_s / 1_000:.0f} kB/s", err=True)
    after = await _measured(victim, lasts_s)
    waits = [each.joined_s for each in found]
    worst = FrameCost(
        cpu=max(each.cpu for each in found),
        joined_s=None if None in waits else max(wait for wait in waits if wait is not None),
        bytes_per_s=max(each.bytes_per_s for each in found),
    )
    return Outcome(
        before=str(before),
        during=str(worst),
        after=str(after),
        attacker=f"at most {worst.bytes_per_s / 1_000:.0f} kB/s",
        bound=f"{100 * cpu_max:.0f} % of a core, a manifest in {_JOINED_S_MAX:.0f} s",
        is_held=worst.cpu <= cpu_max and (worst.joined_s or NEVER_S) <= _JOINED_S_MAX and victim.is_alive,
    )


async def _cost_of(kind: str, victim: Relay, lasts_s: float) -> FrameCost:
    seconds = lasts_s + 2.0  # while it is measured, and a joiner joins
    attacker = Program(module="tests.attacks.cheap_frames", arguments=(kind, victim.address, str(seconds)))
    with start_child(attacker, stderr=2) as process:
        assert process.stdout is not None
        await trio.to_thread.run_sync(process.stdout.read, 1)  # it begins
        found = await _measured(victim, lasts_s)
        sent = await trio.to_thread.run_sync(process.stdout.read)
    return replace(found, bytes_per_s=int(sent) / seconds)


async def _measured(victim: Relay, lasts_s: float) -> FrameCost:
    cpu = await _share_of_a_core(victim, lasts_s)
    return FrameCost(cpu=cpu, joined_s=await manifest_s(victim), bytes_per_s=0.0)


async def _share_of_a_core(victim: Relay, seconds: float) -> float:
    before_s, started_s = victim.cpu_s(), trio.current_time()
    await trio.sleep(seconds)
    return (victim.cpu_s() - before_s) / (trio.current_time() - started_s)


# --- the attacker


async def _frames(link: Link, frame: bytes) -> None:
    while True:
        await link.muxed._write_frame(frame * _AT_ONCE)


async def _pongs(_attacker: Host, link: Link) -> None:
    """Answers to pings that nobody sent."""
    await _frames(link, _header(_PING, _ACK, 0))


async def _empty_frames(_attacker: Host, link: Link) -> None:
    await _frames(link, _header(_DATA, 0, link._stream.stream_id))


async def _window_updates(_attacker: Host, link: Link) -> None:
    await _frames(link, _header(_WINDOW_UPDATE, 0, link._stream.stream_id))


async def _empty_messages(_attacker: Host, link: Link) -> None:
    """Messages of Noise with nothing in them."""
    secured = link.muxed.secured_conn
    noise, stream = secured.conn.noise_state, secured.conn.read_writer.read_write_closer.stream.stream
    while True:
        messages = [noise.encrypt(b"") for _ in range(_AT_ONCE)]
        await stream.send_all(b"".join(len(each).to_bytes(2, "big") + each for each in messages))


async def _starts(_attacker: Host, link: Link) -> None:
    """Streams that are opened and reset."""
    stream_id = 1_001
    while True:
        opened = [_header(_WINDOW_UPDATE, _SYN, stream_id + 2 * n) for n in range(_STREAMS)]
        reset = [_header(_WINDOW_UPDATE, _RST, stream_id + 2 * n) for n in range(_STREAMS)]
        await link.muxed._write_frame(b"".join(opened + reset))
        stream_id += 2 * _STREAMS
        await trio.lowlevel.checkpoint()


async def _identify(attacker: Host, link: Link) -> None:
    """Who are you? Who are you? ..."""
    async with trio.open_nursery() as nursery:
        for _ in range(_STREAMS):
            nursery.start_soon(_ask_for_ever, attacker, link)


async def _ask_for_ever(attacker: Host, link: Link) -> None:
    while True:
        opened = await attacker.open_beside(link, "/ipfs/id/1.0.0")
        with suppress(LinkBrokenError):
            while opened is not None and await opened.receive_some(4_096):
                pass
        await trio.lowlevel.checkpoint()


async def _pings(attacker: Host, link: Link) -> None:
    """32 bytes that come back, a hundred at once."""
    opened = await attacker.open_beside(link, "/ipfs/ping/1.0.0")
    while opened is not None:
        await opened.send_all(bytes(_PING_BYTES * 100))
        for _ in range(100):
            await _receive_exactly(opened, _PING_BYTES)


async def _receive_exactly(link: Link, count: int) -> None:
    while count > 0:
        received = await link.receive_some(count)
        if not received:
            raise LinkBrokenError("the stream has ended")
        count -= len(received)


def _header(kind: int, flags: int, stream_id: int) -> bytes:
    return struct.pack(">BBHII", 0, kind, flags, stream_id, 0)


OnLink = Callable[[Host, Link], Awaitable[None]]
KINDS: Final[dict[str, OnLink | None]] = {
    "pongs": _pongs,
    "empty frames": _empty_frames,
    "window updates": _window_updates,
    "empty messages": _empty_messages,
    "starts of streams": _starts,
    "identify": _identify,
    "pings": _pings,
    "first words of Noise": None,
}


# What the attacker sees when the victim cuts it.
CUT: Final = (
    BaseLibp2pError,
    LinkBrokenError,
    OSError,
    Reject,
    RefusedError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
)


async def _send(kind: str, address: str, seconds: float) -> None:
    """All of one kind, until the time is over; another connection where the victim ends one."""
    for name in ("FRAMES_BURST", "STREAMS_BURST"):  # the attacker does not keep to them
        setattr(bounds, name, 1e18)
    spent = Spent()
    sys.stdout.write("0")
    sys.stdout.flush()
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for _ in range(1 if KINDS[kind] else _STREAMS):
                nursery.start_soon(_send_for_ever, kind, address, spent)
    sys.stdout.write(str(spent.bytes))


async def _send_for_ever(kind: str, address: str, spent: Spent) -> None:
    talk = KINDS[kind]
    attacker = Host(identity_seed=secrets.token_bytes(32), on_inbound=Link.aclose)
    async with attacker.running(()):
        while True:
            with suppress(*CUT):
                await (_talk(talk, attacker, address, spent) if talk else _first_words(address, spent))
            await trio.sleep(_AGAIN_S)


async def _talk(talk: OnLink, attacker: Host, address: str, spent: Spent) -> None:
    link = await link_from(attacker, ATTACKER, address, spent)
    try:
        await _say_hello(link)
        await talk(attacker, link)
    finally:
        await link.aclose()


async def _say_hello(link: Link) -> None:
    """As a newcomer who wants the manifest: anybody may."""
    channel = Channel(link, Timings(), Traffic())
    await exchange_hello(channel, own_hello(run_id=OBSERVER_RUN_ID, agent="", listen=(), head_step=0))


async def _first_words(address: str, spent: Spent) -> None:
    """A key and no more: the victim makes one of its own, computes with both, signs, and answers."""
    target = parse_address(address)
    words = b"\x13/multistream/1.0.0\n\x07/noise\n"
    stream = await trio.open_tcp_stream(target.host, target.port, local_address=ATTACKER)
    async with stream:
        data = words + (32).to_bytes(2, "big") + os.urandom(32)
        spent.bytes += len(data)
        await stream.send_all(data)
        while await stream.receive_some(4_096):
            break


def main(arguments: list[str]) -> None:
    """The attacker."""
    kind, address, seconds = arguments
    trio.run(_send, kind, address, float(seconds))


if __name__ == "__main__":
    main(sys.argv[1:])
