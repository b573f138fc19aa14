"""What the attacks on a node's doors share: a joiner, and connections from other addresses.

The attacker comes from 127.1.0.1 or its neighbours, the joiner from 127.0.0.1. Needs Linux, where all of 127.0.0.0/8
is this machine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from sfnode.network.policy.addresses import parse_address
from sfnode.network.sessions.file_download import Download, Wanted, fetch
from sfnode.network.transport.host import Host
from sfnode.network.transport.link import Link
from tests.attacks.relay import Relay
from tests.support.patience import Stopwatch, waits_of, within

ATTACKER: Final = "127.1.0.1"
NEVER_S: Final = 10.0  # a joiner that has waited for so long has waited in vain


async def manifest_s(victim: Relay) -> float | None:
    """After how long somebody at 127.0.0.1 who wants to join has the manifest; None for never.

    Without what the victim and we stand in the queue for a processor: an attacker on the same machine takes that.
    """
    stopwatch = Stopwatch(partial(waits_of, (victim.pid, os.getpid())))
    try:
        await within(NEVER_S, partial(fetch, Download(Wanted.manifest(None)), (parse_address(victim.address),)))
    except trio.TooSlowError:
        return None
    return stopwatch.seconds()


def in_words(seconds: float | None) -> str:
    """The time that `manifest_s` found."""
    return f"no manifest in {NEVER_S:.0f} s" if seconds is None else f"manifest in {seconds:.2f} s"


@dataclass(slots=True)
class Spent:
    """What the attacker has opened, and what it has sent on that, Noise and all."""

    connections: int = 0
    bytes: int = 0


async def link_from(attacker: Host, local_host: str, address: str, spent: Spent) -> Link:
    """A session stream to the victim, dialled from that address; what goes out is counted."""
    target = parse_address(address)
    assert target.peer is not None
    stream = await trio.open_tcp_stream(target.host, target.port, local_address=local_host)
    spent.connections += 1
    send_all = stream.send_all

    async def counted(data: bytes) -> None:
        spent.bytes += len(data)
        await send_all(data)

    vars(stream)["send_all"] = counted
    return await attacker._upgrade(stream, target.peer)
