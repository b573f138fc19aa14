"""Peers that do all at once that a peer may, and nothing for which they would be cut.

    python -m tests.attacks.greedy_peers address|network|key MULTIADDR RUN_FILE SECONDS

prints a line when all have begun, and at the end another: what they have sent, at how many of their addresses the
victim was dialling at once, and for how long it went on with one of these, in JSON.
"""

from __future__ import annotations

import json
import random
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, Final

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
from sfnode.network.network_config import Timings
from sfnode.network.policy.addresses import parse_address, peer_of_author
from sfnode.network.sessions.bandwidth_limit import Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.handshake import OBSERVER_RUN_ID, exchange_hello, own_hello
from sfnode.network.transport.host import Host
from sfnode.network.transport.link import Link
from sfnode.storage import decode_run_file
from tests.attacks.cheap_frames import CUT
from tests.attacks.doors import Spent, link_from

HELD: Final = Shape(authors=64, steps=256)  # by the victim: half of it is on the disk only
_NETWORK: Final = "127.9.0"
_HOSTS: Final = {"network": [f"{_NETWORK}.{number}" for number in range(1, 250)]}  # others have one address
_IDLERS: Final = 40
_IN_S: Final = 2.0  # handshakes of those who talk
_NEIGHBOURS: Final = 12  # of whom a part gets a place
_OBSERVERS: Final = 4
_AGAIN_S: Final = 0.2
_COPIED_STEPS: Final = 16

_Act = Callable[[Host, str], Awaitable[None]]


@dataclass(slots=True)
class _Attackers:
    """Whom they attack, where they come from, where they want the victim to dial, and what they have spent."""

    address: str
    manifest: Manifest
    hosts: Sequence[str]
    dialled: _SilentListeners
    spent: Spent = field(default_factory=Spent)

    async def start_all(self, nursery: trio.Nursery) -> None:
        """As many as make sense of each kind, from all addresses in turn; those who are silent last.

        They take the places of strangers, which the others need on their way in.
        """
        hosts, dear = cycle(self.hosts), _dear_messages(self.manifest, key=None)
        for act in [self._observe] * _OBSERVERS + [partial(self._cost, dear)] * _NEIGHBOURS:
            nursery.start_soon(self._again, act, secrets.token_bytes(32), next(hosts))
        await trio.sleep(_IN_S)
        for _ in range(_IDLERS):
            nursery.start_soon(self._again, self._idle, secrets.token_bytes(32), next(hosts))

    async def start_key(self, nursery: trio.Nursery) -> None:
        """One author of the run: one session, since a second one of the same key ends the first."""
        dear = _dear_messages(self.manifest, key=signer(0))
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
        victim = parse_address(self.address)
        async with await trio.open_tcp_stream(victim.host, victim.port, local_address=local_host) as stream:
            self.spent.connections += 1
            while await stream.receive_some(1_024):
                pass

    async def _observe(self, attacker: Host, local_host: str) -> None:
        async with self._session(attacker, local_host, OBSERVER_RUN_ID) as channel:
            while True:
                await channel.send_now(ManifestRequest(offset=0))
                await channel.receive_untrusted()

    async def _cost(self, dear: Sequence[bytes], attacker: Host, local_host: str) -> None:
        """Be a neighbour that sends this without end, and invents peers when it is asked for some."""
        run_id = self.manifest.run_id
        async with self._session(attacker, local_host, run_id) as channel, trio.open_nursery() as nursery:
            turn = trio.Lock()
            nursery.start_soon(self._answer, channel, turn, nursery.cancel_scope)
            with suppress(*CUT):
                await self._send_for_ever(dear, channel, turn)
            nursery.cancel_scope.cancel()

    async def _send_for_ever(self, dear: Sequence[bytes], channel: Channel, turn: trio.Lock) -> None:
        for data in cycle(dear):
            async with turn:
                await channel.link.send_all(data)

    async def _answer(self, channel: Channel, turn: trio.Lock, session: trio.CancelScope) -> None:
        with suppress(*CUT):
            while (received := await channel.receive_untrusted()) is not None:
                match received:
                    case Ping(nonce=nonce):
                        answer: Message = Pong(nonce=nonce)
                    case PeersRequest():
                        answer = self.dialled.invented()
                    case _:
                        continue
                async with turn:
                    await channel.send_now(answer)
        session.cancel()

    @asynccontextmanager
    async def _session(self, attacker: Host, local_host: str, run_id: bytes) -> AsyncIterator[Channel]:
        link = await link_from(attacker, local_host, self.address, self.spent)
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
        self.most = 0
        self._began_s: dict[trio.SocketStream, float] = {}
        self._longest_s = 0.0

    def longest_s(self) -> float:
        """Return how long the longest dial has lasted, also if it has not ended."""
        now_s = trio.current_time()
        return max([self._longest_s, *(now_s - each_s for each_s in self._began_s.values())])

    async def serve(self, task_status: Any) -> None:
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
        self._began_s[stream] = trio.current_time()
        self.most = max(self.most, len(self._began_s))
        with suppress(OSError, trio.BrokenResourceError):
            while await stream.receive_some(1_024):
                pass
        self._longest_s = self.longest_s()
        del self._began_s[stream]

    def invented(self) -> Peers:
        """As many peers as one message takes, all at these addresses."""
        told = [
            PeerAddress(peer=peer_of_author(Signer(secrets.token_bytes(32)).author), addresses=self.addresses)
            for _ in range(limits.PEERS_PER_MESSAGE_MAX // 2)
        ]
        return Peers(peers=tuple(told))


def _dear_messages(manifest: Manifest, key: Signer | None) -> list[bytes]:
    """Everything that takes time and is nobody's fault; of a key also both updates for each of its slots."""
    chance, codec = random.Random(0), EnvelopeCodec(manifest)
    old = list(sealed_records(manifest, Shape(authors=HELD.authors, steps=_COPIED_STEPS)))
    steps = bytes([1, 0] * (HELD.steps // 16)).ljust(limits.SPAN_STEPS // 8, b"\0")
    authors = sorted(signer(number).author for number in range(HELD.authors))
    wanted = tuple(WantedSlots(span=0, author=author, steps=steps) for author in authors)
    attest = AttestationCodec(manifest).attest
    told = tuple(
        attest(Signer(secrets.token_bytes(32)), limits.SPAN_STEPS, 1_000, bytes(32)).data
        for _ in range(limits.ATTESTATIONS_PER_MESSAGE_MAX)
    )
    messages: list[Message] = [PullRequest(request=1, wanted=wanted), Attestations(attestations=told)]
    if key is not None:
        last = min(manifest.steps, HELD.steps + limits.STEPS_AHEAD_MAX)
        new = [codec.seal(key, step, scalars_of(manifest, chance)).record for step in range(last) for _ in range(2)]
        old = new + old
    size = limits.FRAME_BYTES_MAX // 256
    messages += [Records(request=0, data=b"".join(old[at : at + size])) for at in range(0, len(old), size)]
    return [frame(encode(message)) for message in messages]


async def _attack(who: str, address: str, manifest: Manifest, seconds: float) -> None:
    listeners = _SilentListeners()
    async with trio.open_nursery() as nursery:
        await nursery.start(listeners.serve)
        attackers = _Attackers(address, manifest, _HOSTS.get(who, [f"{_NETWORK}.1"]), listeners)
        await (attackers.start_key if who == "key" else attackers.start_all)(nursery)
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        await trio.sleep(seconds)
        seen = {"dials": listeners.most, "dial_s": listeners.longest_s()}
        sys.stdout.write(json.dumps(asdict(attackers.spent) | seen) + "\n")
        nursery.cancel_scope.cancel()


def main(arguments: list[str]) -> None:
    """The attackers."""
    who, address, run_file, seconds = arguments
    trio.run(_attack, who, address, decode_run_file(Path(run_file)).manifest, float(seconds))


if __name__ == "__main__":
    main(sys.argv[1:])
