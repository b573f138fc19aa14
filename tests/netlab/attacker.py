"""Bad peers as processes of their own, each of one kind.

    python -m tests.netlab.attacker KIND --run FILE --counts COUNTS --target MULTIADDR

They speak the protocol by hand, as fast as they can, under identities that cost them nothing, until they are killed.
The file COUNTS says what was done so far, once a second.
"""

from __future__ import annotations

import os
import random
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import trio

from benchmarks.sample_runs import scalars_of, signer
from protocol import limits
from protocol.errors import Reject
from protocol.events import MessageArrived
from protocol.framing import LENGTH_BYTES, frame
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import Manifest
from protocol.wire import Message, PeerAddress, PeerId, Peers, Records, SpansRequest, encode
from sfnode.network.network import Network
from sfnode.network.network_config import NetworkConfig, Timings
from sfnode.network.policy.addresses import parse_address, peer_of_author
from sfnode.network.sessions.bandwidth_limit import Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.file_server import ServedRun
from sfnode.network.sessions.handshake import RefusedError, exchange_hello, own_hello
from sfnode.network.transport.host import DialError, Host
from sfnode.network.transport.link import Link, LinkBrokenError
from sfnode.node.event_inbox import open_inbox
from sfnode.storage.data_directory import decode_run_file
from sfnode.storage.disk import write_json

_TALKERS = 4  # sessions at the same time, each under its own identity
_PAUSE_S = 0.05  # between two sessions of one talker; without it, only the making of keys would be measured
_SYBIL_IDENTITIES, _SYBIL_AUTHORS = 40, 300
_TOLD_S = 1.0

Talk = Callable[["Attack", Channel, int], Awaitable[None]]  # the last: the victim's step


@dataclass(slots=True)
class Attack:
    """What all sessions of one attacker share."""

    manifest: Manifest
    targets: tuple[str, ...]
    chance: random.Random = field(default_factory=random.Random)
    done: Counter[str] = field(default_factory=Counter)

    async def talk_for_ever(self, talk: Talk) -> None:
        """One session after another, each under a new identity, to each of the targets in turn."""
        number = self.chance.randrange(len(self.targets))
        while True:
            number += 1
            host = Host(identity_seed=secrets.token_bytes(32), on_inbound=_hang_up)
            async with host.running(()):
                with suppress(DialError, LinkBrokenError, RefusedError, Reject, trio.TooSlowError):
                    await self._talk_once(host, talk, self.targets[number % len(self.targets)])
            await trio.sleep(_PAUSE_S)

    async def _talk_once(self, host: Host, talk: Talk, target: str) -> None:
        self.done["dials"] += 1
        link = await host.dial(parse_address(target))
        try:
            channel = Channel(link, Timings(), Traffic())
            hello = own_hello(run_id=self.manifest.run_id, agent="sfnode", listen=(), head_step=0)
            answer = await exchange_hello(channel, hello)
            self.done["sessions"] += 1
            await talk(self, channel, answer.head_step)
        finally:
            await link.aclose()

    async def tell(self, counts: Path) -> None:
        """Keep the file of counts up to date."""
        while True:
            write_json(counts, dict(self.done))
            await trio.sleep(_TOLD_S)


# --- the kinds --------------------------------------------------------------------------------------------------


async def stalled_reader(attack: Attack, channel: Channel, step: int) -> None:
    """Asks without end and reads no answer."""
    request = 0
    while True:
        request += 1
        await channel.send_now(SpansRequest(request=request))
        attack.done["requests"] += 1
        await trio.sleep(0.02)


async def spammer(attack: Attack, channel: Channel, step: int) -> None:
    """Garbage, forged, cut and old records, requests in bursts; one kind in each session, as fast as it goes."""
    codec = EnvelopeCodec(attack.manifest)
    record = codec.seal(signer(attack.chance.randrange(9)), step, scalars_of(attack.manifest, attack.chance)).record
    forged = record[:-1] + bytes([record[-1] ^ 1])
    kinds: tuple[tuple[str, bytes], ...] = (
        ("garbage", frame(os.urandom(200))),
        ("forged", _frame(Records(request=0, data=forged * 8))),
        ("cut", _frame(Records(request=0, data=record[:-1]))),
        ("unasked", _frame(Records(request=77, data=record))),
        ("oversize", (LENGTH_BYTES * b"\xff") + os.urandom(64)),
        ("replayed", _frame(Records(request=0, data=record * 64))),
        ("requests", b"".join(_frame(SpansRequest(request=number)) for number in range(64))),
    )
    name, data = attack.chance.choice(kinds)
    while True:
        with trio.fail_after(5.0):
            await channel.link.send_all(data)
        attack.done[name] += 1


async def sybil_flood(attack: Attack, channel: Channel, step: int) -> None:
    """Stays, and signs valid updates under hundreds of made-up authors, several for one step among them."""
    codec = EnvelopeCodec(attack.manifest)
    while True:
        step += 1
        authors = attack.chance.sample(range(_SYBIL_AUTHORS), 16)
        scalars = scalars_of(attack.manifest, attack.chance)
        records = b"".join(codec.seal(signer(number), step, scalars).record for number in authors)
        await channel.send_now(Records(request=0, data=records))
        attack.done["updates"] += len(authors)
        await trio.sleep(1.0)


async def flow_control_cheat(attack: Attack, channel: Channel, step: int) -> None:
    """Sends as if the other side's window had no end."""
    stream: Any = channel.link._stream
    stream.send_window = 1 << 40
    data = _frame(SpansRequest(request=1)) * 4_000
    while True:
        with trio.fail_after(5.0):
            await channel.link.send_all(data)
        attack.done["bytes"] += len(data)


async def poisoned_peer_exchange(attack: Attack, run_bytes: bytes) -> None:
    """Listens, lets itself be found, and tells everybody of peers that do not exist."""
    listen = parse_address("/ip4/0.0.0.0/tcp/4001")
    config = NetworkConfig(listen=(listen,), bootstrap=tuple(map(parse_address, attack.targets)))
    run = ServedRun(run_id=attack.manifest.run_id, manifest_bytes=run_bytes)
    inbox, unread = open_inbox()
    network = Network(config=config, identity_seed=secrets.token_bytes(32), run=run, inbox=inbox)

    def recommend(_peer: PeerId, _host: str, *, bytes_max: int) -> tuple[PeerAddress, ...]:
        told = tuple(_nobody(attack) for _ in range(limits.PEERS_PER_MESSAGE_MAX))
        while len(encode(Peers(peers=told))) > bytes_max:
            told = told[:-1]
        attack.done["addresses"] += sum(len(peer.addresses) for peer in told)
        return told

    vars(network._exchange)["recommend"] = recommend
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        async for event in unread:
            attack.done["events"] += 1
            if isinstance(event, MessageArrived):
                network.conversation.handled(event.peer, event.message, seconds=0.0, news=0)


def _nobody(attack: Attack) -> PeerAddress:
    """A peer id that nobody has, at addresses of the public network, most of which nobody has either."""
    draw = attack.chance
    hosts = [f"10.10.{draw.randrange(256)}.{draw.randrange(1, 255)}" for _ in range(7)]
    known = parse_address(draw.choice(attack.targets)).host  # somebody else answers there
    addresses = tuple(f"/ip4/{host}/tcp/4001" for host in (*hosts, known))
    return PeerAddress(peer=peer_of_author(signer(draw.randrange(1 << 30)).author), addresses=addresses)


async def _hang_up(link: Link) -> None:
    await link.aclose()


def _frame(message: Message) -> bytes:
    return frame(encode(message))


TALKS: dict[str, tuple[Talk, int]] = {
    "stalled_reader": (stalled_reader, _TALKERS),
    "spammer": (spammer, _TALKERS),
    "sybil_flood": (sybil_flood, _SYBIL_IDENTITIES),
    "flow_control_cheat": (flow_control_cheat, _TALKERS),
}


async def _attack(kind: str, run_file: Path, targets: tuple[str, ...], counts: Path) -> None:
    signed = decode_run_file(run_file)
    attack = Attack(manifest=signed.manifest, targets=targets)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(attack.tell, counts)
        if kind == "poisoned_peer_exchange":
            await poisoned_peer_exchange(attack, signed.encode())
        talk, talkers = TALKS[kind]
        for _ in range(talkers):
            nursery.start_soon(attack.talk_for_ever, talk)


@click.command()
@click.argument("kind", type=click.Choice([*TALKS, "poisoned_peer_exchange"]))
@click.option("--run", "run_file", type=click.Path(path_type=Path), required=True)
@click.option("--counts", type=click.Path(path_type=Path), required=True)
@click.option("--target", "targets", multiple=True, required=True)
def main(kind: str, run_file: Path, counts: Path, targets: tuple[str, ...]) -> None:
    """Attack the targets until killed."""
    trio.run(_attack, kind, run_file, targets, counts)


if __name__ == "__main__":
    main()
