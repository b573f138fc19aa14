"""A session with a live node, held by hand; and what the node's process spends meanwhile."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import trio

from protocol.framing import frame
from protocol.wire import Message, Ping, Pong, encode
from sfnode.network.network_config import Timings
from sfnode.network.policy.addresses import parse_address
from sfnode.network.sessions.bandwidth_limit import Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.handshake import exchange_hello, own_hello
from sfnode.network.transport.host import Host
from sfnode.network.transport.link import Link, LinkBrokenError
from sfnode.testnet.node_process import NodeProcess

_PING_EVERY_S = 0.005
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
Declared = TypeVar("Declared", bound=Message)


@dataclass
class Visitor:
    """Says and hears messages after hello. ``sent_bytes``: without Noise, yamux and TCP."""

    channel: Channel
    sent_bytes: int = 0

    async def say(self, *messages: Message) -> None:
        """Send at once."""
        data = b"".join(frame(encode(message)) for message in messages)
        self.sent_bytes += len(data)
        await self.channel.link.send_all(data)

    async def hear(self, declared: type[Declared]) -> Declared:
        """The next message of that kind; others are passed over. LinkBrokenError at the end of the session."""
        while (received := await self.channel.receive_untrusted()) is not None:
            if isinstance(received, declared):
                return received
        raise LinkBrokenError("the session is over")

    async def ping(self) -> None:
        """One ping and its answer, and a short rest."""
        await self.say(Ping(nonce=0))
        await self.hear(Pong)
        await trio.sleep(_PING_EVERY_S)

    async def ping_for(self, seconds: float) -> None:
        """One ping after the other."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            await self.ping()


@asynccontextmanager
async def visiting(address: str, run_id: bytes, *, identity: bytes | None = None) -> AsyncIterator[Visitor]:
    """A session with the node at ``address``, under a fresh identity unless one is given."""
    host = Host(identity_seed=identity or secrets.token_bytes(32), on_inbound=_hang_up)
    async with host.running(()):
        link = await host.dial(parse_address(address))
        try:
            channel = Channel(link, Timings(), Traffic())
            hello = own_hello(run_id=run_id, agent="visitor", listen=(), head_step=0)
            await exchange_hello(channel, hello)
            yield Visitor(channel)
        finally:
            with suppress(LinkBrokenError):
                await link.aclose()


def pid_of(node: NodeProcess) -> int:
    """Return the process id of a node that has been started."""
    assert node.process is not None
    return node.process.pid


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def memory_mb(pid: int, *, is_peak: bool = False) -> float:
    """What a process holds in memory, or has held at most."""
    wanted = "VmHWM:" if is_peak else "VmRSS:"
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(wanted)) / 1e3


async def _hang_up(link: Link) -> None:
    await link.aclose()
