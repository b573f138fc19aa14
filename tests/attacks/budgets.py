"""What one address, one network and one admitted key can cost a node at most, while each does all at once that it may.

The bounds are those of sfnode/network/bounds.py and protocol/limits.py, multiplied with what a turn of each costs:
whoever changes one of them sees here what it makes of the whole.

* Processor: handshakes and the frames of strangers by their rates, and of each neighbour the records that nobody asked
  for, the answers and the frames. A node is one process, and never takes more than a core for this.
* Memory: each connection has buffers in both directions, and objects beside them.
* Disk: the address book, which is full at some time, and of a key two updates for each slot that it may sign.
* Files: a socket for each connection that is allowed, and for each dial. A connection that is refused exists for
  moments, and counts with those that wait for their turn.
* Dial slots: some dials at once, and no silent address keeps one longer than a dial may take.

A network counts as one: here as across the internet, by --limit-private. So an address can cost what its network can.
"""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Final

import trio

from benchmarks.sample_runs import Shape, scalars_of, sealed_records, seed_of_author, signer
from protocol import limits
from protocol.crypto.keys import Signer
from protocol.framing import frame
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import Manifest
from protocol.state.snapshot import AttestationCodec
from protocol.wire import (
    Attestations,
    ManifestRequest,
    Message,
    PeerAddress,
    Peers,
    PeersRequest,
    Ping,
    Pong,
    PullRequest,
    Records,
    WantedSlots,
    encode,
)
from sfnode.network import bounds
from sfnode.network.network_config import Timings
from sfnode.network.policy.addresses import peer_of_author
from sfnode.network.sessions.channel import Channel, Traffic
from sfnode.network.sessions.handshake import OBSERVER_RUN_ID, exchange_hello, own_hello
from sfnode.network.transport.host import Host
from sfnode.network.transport.link import Link
from tests.attacks.cheap_frames import CUT
from tests.attacks.doors import Spent, link_from
from tests.attacks.relay import Relay
from tests.attacks.visitor import memory_mb

_HELD: Final = Shape(authors=64, steps=256)  # half of it is on the disk only
_LASTS_S: Final = {False: 40.0, True: 6.0}
_JOINED_S_MAX: Final = 3.0
_NETWORK: Final = "127.9.0"
_IDLERS: Final = 40
_NEIGHBOURS: Final = 12  # of whom a part gets a place
_OBSERVERS: Final = 4
_AGAIN_S: Final = 0.2
_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What somebody costs a node, or may: of a core, MB, MB, at once, at once, and the longest of these."""

    cpu: float
    memory_mb: float
    disk_mb: float
    files: int
    dials: int
    dial_s: float

    def __str__(self) -> str:
        return (
            f"{self.cpu:.2f} of a core, {self.memory_mb:.0f} MB, {self.disk_mb:.1f} MB of disk, {self.files} files, "
            f"{self.dials} dials of {self.dial_s:.0f} s"
        )

    def is_within(self, bound: Cost) -> bool:
        """Whether nothing costs more."""
        return all(getattr(self, each.name) <= getattr(bound, each.name) for each in fields(Cost))


# --- the attackers

_Act = Callable[[Host, str], Awaitable[None]]


@dataclass(slots=True)
class _Attackers:
    """Where the attackers come from, where they want the victim to dial, and what they have spent."""

    victim: Relay
    hosts: Sequence[str]
    dialled: _SilentListeners
    spent: Spent = field(default_factory=Spent)

    def start_all(self, nursery: trio.Nursery) -> None:
        """As many as make sense of each kind, from all addresses in turn."""
        hosts, dear = cycle(self.hosts), _dear_messages(self.victim.manifest, key=None)
        kinds = [self._idle] * _IDLERS + [self._observe] * _OBSERVERS + [partial(self._cost, dear)] * _NEIGHBOURS
        for act in kinds:
            nursery.start_soon(self._again, act, secrets.token_bytes(32), next(hosts))

    def start_key(self, nursery: trio.Nursery) -> None:
        """One author of the run: one session, since a second one of the same key ends the first."""
        dear = _dear_messages(self.victim.manifest, key=signer(0))
        nursery.start_soon(self._again, partial(self._cost, dear), seed_of_author(0), self.hosts[0])

    async def _again(self, act: _Act, identity: bytes, local_host: str) -> None:
        """Do it, and again whenever the victim ends it."""
        attacker = Host(identity_seed=identity, on_inbound=Link.aclose)
        async with attacker.running(()):
            while True:
                with suppress(*CUT):
                    await act(attacker, local_host)
                await trio.sleep(_AGAIN_S)

    async def _idle(self, _attacker: Host, local_host: str) -> None:
        async with await trio.open_tcp_stream(self.victim.host, self.victim.port, local_address=local_host) as stream:
            self.spent.connections += 1
            while await stream.receive_some(1_024):
                pass

    async def _observe(self, attacker: Host, local_host: str) -> None:
        async with self._session(attacker, local_host, OBSERVER_RUN_ID) as channel:
            while True:
                await channel.send_now(ManifestRequest(offset=0))
                await channel.receive_untrusted()

    async def _cost(self, dear: bytes, attacker: Host, local_host: str) -> None:
        """Be a neighbour that sends this without end, and invents peers when it is asked for some."""
        async with self._session(attacker, local_host, self.victim.manifest.run_id) as channel:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._answer, channel, nursery.cancel_scope)
                with suppress(*CUT):
                    while True:
                        await channel.link.send_all(dear)
                nursery.cancel_scope.cancel()

    async def _answer(self, channel: Channel, session: trio.CancelScope) -> None:
        with suppress(*CUT):
            while (received := await channel.receive_untrusted()) is not None:
                match received[0]:
                    case Ping(nonce=nonce):
                        await channel.send_now(Pong(nonce=nonce))
                    case PeersRequest():
                        await channel.send_now(self.dialled.invented())
        session.cancel()

    @asynccontextmanager
    async def _session(self, attacker: Host, local_host: str, run_id: bytes) -> AsyncIterator[Channel]:
        link = await link_from(attacker, local_host, self.victim.address, self.spent)
        try:
            channel = Channel(link, Timings(), Traffic())
            hello = own_hello(run_id=run_id, agent="all", listen=self.dialled.addresses, head_step=0)
            await exchange_hello(channel, hello)
            yield channel
        finally:
            await link.aclose()


class _SilentListeners:
    """Addresses at which a dial is accepted and never answered."""

    def __init__(self) -> None:
        self.addresses: tuple[str, ...] = ()
        self.total = self.now = self.most = 0
        self.longest_s = 0.0

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        listeners = [
            each
            for _ in range(limits.ADDRESSES_PER_PEER_MAX)
            for each in await trio.open_tcp_listeners(0, host=f"{_NETWORK}.1")
        ]
        ports = [each.socket.getsockname()[1] for each in listeners]
        self.addresses = tuple(f"/ip4/{_NETWORK}.1/tcp/{port}" for port in ports)
        task_status.started()
        await trio.serve_listeners(self._hear, listeners)

    async def _hear(self, stream: trio.SocketStream) -> None:
        start_s = trio.current_time()
        self.total, self.now = self.total + 1, self.now + 1
        self.most = max(self.most, self.now)
        with suppress(OSError, trio.BrokenResourceError):
            while await stream.receive_some(1_024):
                pass
        self.now -= 1
        self.longest_s = max(self.longest_s, trio.current_time() - start_s)

    def invented(self) -> Peers:
        """As many peers as one message takes, all at these addresses."""
        told = [
            PeerAddress(peer=peer_of_author(Signer(secrets.token_bytes(32)).author), addresses=self.addresses)
            for _ in range(limits.PEERS_PER_MESSAGE_MAX // 2)
        ]
        return Peers(peers=tuple(told))


def _dear_messages(manifest: Manifest, key: Signer | None) -> bytes:
    """Everything that takes time and is nobody's fault; of a key also both updates for each of its slots."""
    chance, codec = random.Random(0), EnvelopeCodec(manifest)
    old = list(sealed_records(manifest, Shape(authors=_HELD.authors, steps=16)))
    steps = bytes([1, 0] * (_HELD.steps // 16)).ljust(limits.SPAN_STEPS // 8, b"\0")
    authors = sorted(signer(number).author for number in range(_HELD.authors))
    wanted = tuple(WantedSlots(span=0, author=author, steps=steps) for author in authors)
    attest = AttestationCodec(manifest).attest
    told = tuple(
        attest(Signer(secrets.token_bytes(32)), limits.SPAN_STEPS, 1_000, bytes(32)).data
        for _ in range(limits.ATTESTATIONS_PER_MESSAGE_MAX)
    )
    messages: list[Message] = [PullRequest(request=1, wanted=wanted), Attestations(attestations=told)]
    if key is not None:
        last = min(manifest.steps, _HELD.steps + limits.STEPS_AHEAD_MAX)
        new = [codec.seal(key, step, scalars_of(manifest, chance)).record for step in range(last) for _ in range(2)]
        old = new + old
    size = limits.FRAME_BYTES_MAX // 256
    messages += [Records(request=0, data=b"".join(old[at : at + size])) for at in range(0, len(old), size)]
    return b"".join(frame(encode(message)) for message in messages)


# --- the victim


async def _measured(victim: Relay, listeners: _SilentListeners, seconds: float) -> Cost:
    """What the victim spends from now on, beside what it spent before."""
    files_before, disk_before, memory_before = _files(victim), _disk_mb(victim), memory_mb(victim.pid)
    cpu_before_s, start_s, files = victim.cpu_s(), trio.current_time(), 0
    listeners.most, listeners.longest_s = listeners.now, 0.0
    while trio.current_time() < start_s + seconds:
        await trio.sleep(_LOOK_S)
        files = max(files, _files(victim))
    cpu = (victim.cpu_s() - cpu_before_s) / (trio.current_time() - start_s)
    return Cost(
        cpu=cpu,
        memory_mb=memory_mb(victim.pid, is_peak=True) - memory_before,
        disk_mb=_disk_mb(victim) - disk_before,
        files=files - files_before,
        dials=listeners.most,
        dial_s=listeners.longest_s,
    )


def _files(victim: Relay) -> int:
    return len(os.listdir(f"/proc/{victim.pid}/fd"))


def _disk_mb(victim: Relay) -> float:
    return sum(each.stat().st_blocks * 512 for each in Path(victim.process.directory).rglob("*")) / 1e6
