"""Target ``node``: the node core among three peers, each honest until its first lie, and with the worst of luck.

A peer that never lied must never be dropped, whatever comes late or twice or is lost; nothing that a liar sends may
escape, break a promise of SPEC 9 or make the node's state differ from what its ledger implies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from protocol import timings
from protocol.crypto.hashing import seed_of
from protocol.events import (
    DropPeer,
    Effect,
    EstimateFinished,
    EstimateLost,
    EstimateSkipped,
    Event,
    Halt,
    MessageArrived,
    PeerJoined,
    PeerLeft,
    ReserveStep,
    SendMessage,
    StartEstimate,
    StoreRecords,
    Ticked,
    WorkerReady,
)
from protocol.limits import WORK_DISTANCE_MAX
from protocol.node.node import Node
from protocol.node.node_config import NodeConfig
from protocol.state.replica import Replica
from protocol.sync.anti_entropy import Request, answer
from protocol.wire import Head, Message, PeerId, Records, decode_untrusted, encode
from tests.fuzz.catalogue import Target
from tests.fuzz.choices import Choices
from tests.fuzz.lies import any_request, lie
from tests.support.ledgers import add, seal, signer
from tests.support.manifests import small_manifest
from tests.support.sample_messages import MESSAGES

MANIFEST = small_manifest(authors_max=4)
ME = 3
PEERS = (PeerId("a"), PeerId("b"), PeerId("c"))
STEPS = (0, 1, 3, 20, 39)
EVENTS_MAX = 48
PAUSES_MS = (0, 10, 50, 200, 1_000, 2_000, 10_000, 61_000)


@lru_cache(maxsize=1_024)
def record_of(author: int, step: int, scalar: int) -> bytes:
    """A valid record; author ``ME`` is the node itself: an old backup, or a second machine with its key."""
    return seal(MANIFEST, author, step, scalar)


@dataclass
class Peer:
    """What one neighbour holds and has done; ``requests`` are those of the node that it has not answered."""

    replica: Replica
    is_joined: bool = False
    is_honest: bool = True
    requests: list[Request] = field(default_factory=list)


class Scene:
    """One node, its disk, its worker and its peers."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.config = NodeConfig(
            is_training=not choices.one_in(8),
            expects_peers=choices.one_in(2),
            neighbours_min=choices.pick((0, 0, 1)),
            reserved_step=choices.pick((-1, -1, -1, 2)),
        )
        self.node = Node(MANIFEST, signer(ME), self.config, Replica(MANIFEST))
        self.peers = {name: Peer(replica=Replica(MANIFEST)) for name in PEERS}
        self.now_ms = 0
        self.reserved = self.config.reserved_step
        self.estimating: int | None = None
        self.signed: set[int] = set()
        self.trace: list[list[Effect]] = []

    # --- what happens

    def run(self) -> None:
        """As many events as the input has, then time enough for every request to have failed."""
        happenings: tuple[Callable[[], None], ...] = (
            self._pass_time,
            self._come_or_go,
            self._answer,
            self._answer,
            self._push,
            self._push,
            self._tell_head,
            self._learn,
            self._ask,
            self._work,
            self._work,
            self._lie,
        )
        for _ in range(EVENTS_MAX):
            if not self.choices.is_left:
                break
            self.choices.pick(happenings)()
        for _ in range(2):
            self.now_ms += timings.REQUEST_TIMEOUT_MS
            self._tell(Ticked())
        self._check_end()

    def _pass_time(self) -> None:
        self.now_ms += self.choices.pick(PAUSES_MS)
        self._tell(Ticked())

    def _come_or_go(self) -> None:
        name, peer = self._peer()
        peer.is_joined = not (peer.is_joined and self.choices.one_in(2))
        peer.requests = []
        self._tell(PeerJoined(peer=name) if peer.is_joined else PeerLeft(peer=name))

    def _answer(self) -> None:
        """A peer answers a request of the node: the latest or an old one; or cuts its answer short."""
        name, peer = self._peer()
        if not peer.requests:
            return
        request = peer.requests.pop(self.choices.below(len(peer.requests)))
        replies = answer(peer.replica.ledger, request)
        if self.choices.one_in(8):
            replies = replies[:-1]
        for reply in replies:
            is_lie = self.choices.one_in(16)
            peer.is_honest = peer.is_honest and not is_lie
            self._arrive(name, (lie(reply, self.choices) if is_lie else None) or reply)

    def _push(self) -> None:
        """Records that the peer holds: valid ones are nobody's fault, whoever signed them."""
        name, peer = self._peer()
        records = [self._record() for _ in range(1 + self.choices.below(3))]
        for record in records:
            add(peer.replica.ledger, record)
        data = b"".join(records)
        if self.choices.one_in(8):
            peer.is_honest = False
            data = self.choices.changed(data)
        self._arrive(name, Records(request=self.choices.pick((0, 0, 1, 2)), data=data))

    def _tell_head(self) -> None:
        name, peer = self._peer()
        fresh = Replica(MANIFEST)  # the ledger was filled behind the replica's back
        for envelope in peer.replica.ledger.slots.envelopes():
            fresh.add(envelope.record)
        ledger = peer.replica.ledger
        head = Head(
            root=ledger.root(),
            state_digest=fresh.state_digest(),
            updates=ledger.updates,
            step=self.choices.pick((0, 0, *STEPS)),
            work_distance=self.choices.below(WORK_DISTANCE_MAX + 1),
        )
        if self.choices.one_in(8):
            peer.is_honest = False
            root = self.node.replica.ledger.root()
            head = Head(root=root, state_digest=b"\1" * 32, updates=2**64 - 1, step=2**32 - 1, work_distance=0)
        self._arrive(name, head)

    def _learn(self) -> None:
        """A peer takes in records that it does not push."""
        _, peer = self._peer()
        for _ in range(1 + self.choices.below(4)):
            add(peer.replica.ledger, self._record())

    def _ask(self) -> None:
        name, _ = self._peer()
        self._arrive(name, any_request(self.choices))

    def _work(self) -> None:
        """The worker is ready, answers, gives up or dies; at times about a step that it was not asked for."""
        step = self.estimating if self.estimating is not None else self.choices.below(40)
        if self.choices.one_in(8):
            step = self.choices.below(40)
        is_asked = step == self.estimating
        events: tuple[Event, ...] = (
            WorkerReady(),
            EstimateFinished(step=step, scalars=(5,)),
            EstimateFinished(step=step, scalars=(-7,)),
            EstimateSkipped(step=step),
            EstimateLost(step=step),
        )
        event = self.choices.pick(events)
        if is_asked and not isinstance(event, WorkerReady):
            self.estimating = None
        self._tell(event)

    def _lie(self) -> None:
        """Any message at all, also one that is not for the core."""
        name, peer = self._peer()
        message = lie(self.choices.pick(MESSAGES), self.choices)
        if message is not None:
            peer.is_honest = False
            self._arrive(name, message)

    def _peer(self) -> tuple[PeerId, Peer]:
        name = self.choices.pick(PEERS)
        return name, self.peers[name]

    def _record(self) -> bytes:
        return record_of(self.choices.below(4), self.choices.pick(STEPS), self.choices.pick((5, 5, -7)))

    # --- what the node does

    def _arrive(self, name: PeerId, message: Message) -> None:
        """Also from a peer that is gone: its last messages may still be on their way."""
        self._tell(MessageArrived(peer=name, message=message))

    def _tell(self, event: Event) -> None:
        before = self.node.replica.ledger.root()
        stored: list[bytes] = []
        effects = self.node.handle(event, self.now_ms)
        self.trace.append(effects)
        for effect in effects:
            self._carry_out(effect, stored)
        assert stored or self.node.replica.ledger.root() == before, "the ledger grew, but nothing was stored"

    def _carry_out(self, effect: Effect, stored: list[bytes]) -> None:
        match effect:
            case StoreRecords():
                assert effect.records and all(len(record) == 110 for record in effect.records)
                stored.extend(effect.records)
                if effect.is_own:
                    self._check_own(effect.records)
            case ReserveStep():
                assert effect.step > self.reserved, "a step was reserved twice"
                self.reserved = effect.step
            case StartEstimate():
                assert self.config.is_training and self.estimating is None and effect.step == self.reserved < 40
                assert effect.seed == seed_of(MANIFEST.run_id, signer(ME).author, effect.step)
                self.estimating = effect.step
            case SendMessage():
                self._check_sent(effect)
            case DropPeer():
                assert not self.peers[effect.peer].is_honest, f"an honest peer was dropped: {effect.reason}"
                self.peers[effect.peer].is_joined = False
            case Halt():
                raise AssertionError(f"the node halted: {effect.detail}")

    def _check_own(self, records: tuple[bytes, ...]) -> None:
        (record,) = records
        step = int.from_bytes(record[32:36], "big")
        assert step not in self.signed and step <= self.reserved
        self.signed.add(step)

    def _check_sent(self, effect: SendMessage) -> None:
        peer = self.peers[effect.peer]
        assert peer.is_joined, "a message to a peer that is gone"
        assert decode_untrusted(encode(effect.message)) == effect.message
        if isinstance(effect.message, Request):
            peer.requests.append(effect.message)

    def _check_end(self) -> None:
        replica = self.node.replica
        assert replica.state_digest() == replica.replayed_digest()
        assert self.signed <= {step for step in range(40) if self._holds_own(step)}
        assert self.node.own_steps.estimating == self.estimating
        for name, peer in self.peers.items():
            assert self.node.sync.is_open(name) == peer.is_joined
            neighbour = self.node.sync._neighbours.get(name)
            assert neighbour is None or neighbour.session is None, "a session outlived its time limit"
        assert not self.node.sync._claims.taken

    def _holds_own(self, step: int) -> bool:
        steps = (1 << step).to_bytes(128, "little")
        return any(self.node.replica.ledger.slots.records(0, signer(ME).author, steps))


def check_node(data: bytes) -> None:
    """The same events give the same effects, in a node that was made anew."""
    traces = []
    for _ in range(2):
        scene = Scene(Choices(data))
        scene.run()
        traces.append(scene.trace)
    assert traces[0] == traces[1]


def node_seeds() -> Iterator[bytes]:
    """A run alone, one with honest peers that differ, and much of everything."""
    start = bytes((2, 2, 0, 0))  # trains, expects nobody
    yield start + bytes((0, 2, 9, 0, 2, 0)) * 3
    join = bytes((1, 0, 2, 1, 1, 2))
    for number in range(24):
        noise = bytes((number * 17 + index * (number + 5)) % 256 for index in range(60 + 8 * number))
        yield start + join + noise
    ask = bytes((6, 0, 0, 0, 2)) + bytes((2, 0, 0, 2, 2, 2)) * 4
    yield start + join + bytes((7, 0, 3, 0, 1, 0, 1, 2, 0, 2, 3, 0, 1, 4, 0)) + ask * 3


TARGETS = {"node": Target(check=check_node, seeds=node_seeds)}
