"""Peers that do not follow the protocol. An equivocator is a node whose author cheats, a liar one that lies to its
neighbours; the others run no node at all."""

from __future__ import annotations

from dataclasses import replace

from protocol import limits
from protocol.crypto.keys import Signer
from protocol.events import SendMessage, StoreRecords
from protocol.ledger.envelope import EnvelopeCodec
from protocol.wire import (
    AuthorHoldings,
    Authors,
    AuthorsRequest,
    Head,
    Message,
    Payloads,
    PeerId,
    PullDone,
    PullRequest,
    Records,
    ShardDigest,
    Shards,
    ShardsRequest,
    SpanDigest,
    Spans,
    SpansRequest,
    decode_untrusted,
    encode,
)
from tests.simulation.environment import Environment
from tests.simulation.host import Host, HostConfig
from tests.simulation.scenario import Fault, stream
from tests.simulation.watch import Watch
from tests.simulation.worker import random_scalars

_SPAM_MS = 150
_SYBILS_MAX = 12
_EQUIVOCATES, _LIES = 0.4, 0.5  # chances of one update, of one message


class Equivocator(Host):
    """Follows the protocol, but signs two to eight payloads for some rounds, and tells each neighbour another one."""

    def __init__(self, environment: Environment, watch: Watch, name: str, config: HostConfig) -> None:
        super().__init__(environment, watch, name, config)
        self.forget()  # nothing is promised to a cheat

    def _store(self, effect: StoreRecords) -> None:
        super()._store(effect)
        environment = self._environment
        if not effect.is_own or not self.peers or not environment.is_faulty or self._random.random() >= _EQUIVOCATES:
            return
        codec = EnvelopeCodec(self._manifest)
        step = codec.decode_untrusted(effect.records[0]).step
        for _ in range(self._random.randint(1, 7)):
            version = codec.seal(self.signer, step, random_scalars(self._manifest, self._random))
            peer = self._random.choice(sorted(self.peers))
            self.send(SendMessage(peer=peer, message=Records(request=0, data=version.record)))
            environment.count(Fault.EQUIVOCATION)


class Liar(Host):
    """Runs a real node, and lies in every second message about what it holds, in one of many ways."""

    is_hostile = True

    def __init__(self, environment: Environment, watch: Watch, name: str, config: HostConfig) -> None:
        super().__init__(environment, watch, name, config)
        self.forget()  # nobody need have what it says

    def send(self, effect: SendMessage) -> None:
        """Send the truth, a lie, or nothing."""
        message: Message | None = effect.message
        if not isinstance(message, Records) and self._random.random() < _LIES:
            self._environment.count(Fault.LIE)
            message = self._random.choice((None, self._lie(effect.message), _other_kind(effect.message)))
        if message is not None:
            super().send(replace(effect, message=message))

    def _cut_off(self, peer: PeerId, reason: str) -> None:
        self._environment.link(self.name, peer).ban()

    def _lie(self, message: Message) -> Message:
        draw = self._random
        match message:
            case Head():
                return draw.choice(
                    [
                        replace(message, root=draw.randbytes(32)),
                        replace(message, state_digest=draw.randbytes(32)),
                        replace(message, root=draw.randbytes(32), step=2**32 - 1, updates=2**64 - 1),
                        replace(message, step=draw.randrange(self._manifest.steps)),
                    ]
                )
            case Spans():
                spans = [SpanDigest(span=entry.span, digest=draw.randbytes(16)) for entry in message.spans]
                return replace(message, spans=tuple(draw.choice([spans, spans[::-1], [], spans * 2])))
            case Shards():
                shards = [ShardDigest(shard=shard, digest=draw.randbytes(16)) for shard in range(256)]
                few = [ShardDigest(shard=entry.shard, digest=draw.randbytes(16)) for entry in message.shards]
                return replace(message, shards=tuple(draw.choice([shards, few, few[::-1]])))
            case Authors():
                return self._lie_about_authors(message)
            case Payloads():
                return replace(message, hashes=draw.choice([draw.randbytes(len(message.hashes)), b"", b"odd"]))
            case PullDone():
                answers: list[Message] = [
                    replace(message, records=9),
                    Spans(request=message.request, statements=bytes(16), spans=()),
                ]
                return draw.choice(answers)
            case _:
                return message

    def _lie_about_authors(self, message: Authors) -> Authors:
        draw = self._random
        everything, nothing = b"\xff" * (limits.SPAN_STEPS // 8), bytes(limits.SPAN_STEPS // 8)
        wrong = [replace(entry, digest=draw.randbytes(16)) for entry in message.authors]
        promised = [replace(entry, valid=everything, void=nothing) for entry in wrong]
        voided = [replace(entry, valid=nothing, void=everything) for entry in wrong]
        invented = [
            AuthorHoldings(author=author, digest=draw.randbytes(16), valid=everything, void=nothing)
            for author in sorted(draw.randbytes(32) for _ in range(3))
        ]
        return draw.choice(
            [
                replace(message, authors=tuple(promised)),
                replace(message, authors=tuple(voided)),
                replace(message, authors=tuple(invented), is_last=False),
                replace(message, authors=(), is_last=False),
                replace(message, authors=message.authors[::-1]),
                replace(message, span=message.span ^ 1),
            ]
        )


def _other_kind(message: Message) -> Message:
    """An answer of another kind under the right number; other messages stay as they are."""
    if isinstance(message, Spans | Shards | Authors | Payloads):
        return PullDone(request=message.request, records=0)
    return message


class Intruder:
    """A peer without a node: reads what it is sent, and every now and then sends something to a neighbour."""

    is_hostile = True
    is_up = True
    fault: Fault

    def __init__(self, environment: Environment, name: str) -> None:
        self.name = PeerId(name)
        self.peers: set[PeerId] = set()
        self._environment = environment
        self._manifest = environment.scenario.manifest
        self._random = stream(environment.scenario.seed, f"host {name}")
        self._seen: list[bytes] = []
        environment.schedule(_SPAM_MS, self._act)

    def receive(self, source: PeerId, data: bytes) -> None:
        """Keep some of what comes, to send it again later."""
        if len(self._seen) < 64 or self._random.random() < 0.05:
            self._seen.append(data)
            del self._seen[:-64]

    def peer_joined(self, peer: PeerId) -> None:
        """A session is open."""
        self.peers.add(peer)

    def peer_left(self, peer: PeerId, delay_ms: int) -> None:
        """A session is over."""
        self.peers.discard(peer)

    def serve(self, sha256: bytes) -> bytes | None:
        """It has no snapshots."""

    def _act(self) -> None:
        if self._environment.is_faulty:
            if self.peers:
                peer = self._random.choice(sorted(self.peers))
                self._environment.count(self.fault)
                for data in self._frames():
                    self._environment.link(self.name, peer).carry(self.name, data)
            self._environment.schedule(self._random.randrange(_SPAM_MS, 3 * _SPAM_MS), self._act)

    def _frames(self) -> list[bytes]:
        raise NotImplementedError


class Spammer(Intruder):
    """Garbage, bad signatures, copies, records from far ahead, requests in bursts, identities that cost nothing."""

    fault = Fault.SPAM
    _asked = 7  # number of a neighbour's last request: what it sends may look like the answer

    def receive(self, source: PeerId, data: bytes) -> None:
        """Keep some of what comes, and what was asked."""
        super().receive(source, data)
        message = decode_untrusted(data)
        if isinstance(message, SpansRequest | ShardsRequest | AuthorsRequest | PullRequest):
            self._asked = message.request

    def _frames(self) -> list[bytes]:
        draw = self._random
        kind = draw.randrange(7)
        if kind == 0:
            return [draw.randbytes(draw.randrange(200))]
        if kind == 1:
            flipped = bytearray(draw.choice(self._seen) if self._seen else b"\0")
            flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
            return [bytes(flipped)]
        if kind == 2:
            return self._seen * 2
        if kind == 3:
            return [encode(SpansRequest(request=number)) for number in range(1, 30)]
        record = self._record()
        if kind == 4:
            return [encode(Records(request=0, data=record[:-1] + bytes([record[-1] ^ 1])))]
        if kind == 5:
            return [encode(Records(request=self._asked, data=record * 3))]
        return [encode(Records(request=0, data=record))]

    def _record(self) -> bytes:
        """A valid record of an identity made up for it, at any step."""
        draw, rounds = self._random, self._manifest.steps // self._manifest.method.local_steps
        sybil = Signer(f"sybil {draw.randrange(_SYBILS_MAX)}".encode().ljust(32, b"."))
        step = draw.randrange(rounds) * self._manifest.method.local_steps
        return EnvelopeCodec(self._manifest).seal(sybil, step, random_scalars(self._manifest, draw)).record


class Replayer(Intruder):
    """Floods what honest authors signed in another run, with the same key and steps."""

    fault = Fault.REPLAY

    def __init__(self, environment: Environment, name: str, victims: list[Signer]) -> None:
        super().__init__(environment, name)
        self._victims = victims
        self._other_run = EnvelopeCodec(replace(self._manifest, name="another run"))

    def _frames(self) -> list[bytes]:
        step = self._random.randrange(4) * self._manifest.method.local_steps
        victim = self._random.choice(self._victims)
        scalars = random_scalars(self._manifest, self._random)
        return [encode(Records(request=0, data=self._other_run.seal(victim, step, scalars).record))]
