"""A run with snapshots for tests: three authors who have left a span behind, node cores of it, and forged snapshots."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache

from protocol import limits
from protocol.events import Effect, MessageArrived, PeerJoined, SendMessage, Ticked
from protocol.ledger.ledger import Ledger
from protocol.node.node import Node
from protocol.node.node_config import NodeConfig
from protocol.run.manifest import Manifest
from protocol.state.replica import Replica
from protocol.state.snapshot import Attestation, AttestationCodec, Snapshot, encode_snapshot
from protocol.state.snapshot_proof import take_snapshot
from protocol.wire import Head, PeerId
from tests.support.ledgers import admit, seal, signer
from tests.support.manifests import small_manifest

AUTHORS = (1, 2, 3)
JOINER = 9
STEP = 1_024
ROUND = 16  # local steps
STEPS = 4_096
FRONTIER = 2_112  # of RUN


@lru_cache
def run_of(*, admission: str = "allow-list", epoch_steps: int = 1_536, local_steps: int = ROUND) -> Manifest:
    """A run of several spans; the step of the snapshot lies within an epoch."""
    return small_manifest(admission=admission, epoch_steps=epoch_steps, local_steps=local_steps, steps=STEPS)


RUN = run_of()
DENSE_RUN = small_manifest(core="dense", admission="allow-list", steps=STEPS)


@lru_cache
def records(manifest: Manifest = RUN) -> tuple[bytes, ...]:
    """All rounds of all authors until the snapshot is due, and four more."""
    size = manifest.method.local_steps
    end = STEP + (limits.STEPS_AHEAD_MAX + 5) * size
    return tuple(seal(manifest, author, step) for step in range(0, end, size) for author in AUTHORS)


def replica_of(manifest: Manifest = RUN, held: tuple[bytes, ...] | None = None) -> Replica:
    """A replica with all statements, and with all records unless others are given."""
    replica = Replica(manifest)
    if manifest.admission.kind != "open":
        for number in (*AUTHORS, JOINER):
            replica.add_statement(admit(manifest, number))
    for record in records(manifest) if held is None else held:
        replica.add(record)
    return replica


def attest(snapshot: Snapshot, *authors: int, manifest: Manifest = RUN) -> list[Attestation]:
    """What these authors sign about the snapshot."""
    data = encode_snapshot(manifest, snapshot)
    codec, sha256 = AttestationCodec(manifest), hashlib.sha256(data).digest()
    return [codec.attest(signer(number), snapshot.step, len(data), sha256) for number in authors]


@lru_cache
def true_snapshot(manifest: Manifest = RUN) -> Snapshot:
    """The snapshot that the records imply."""
    return take_snapshot(replica_of(manifest), STEP)


@lru_cache
def false_snapshot() -> Snapshot:
    """A snapshot of the same updates, in which one coefficient is wrong."""
    true = true_snapshot()
    flat = true.epochs[0].copy()
    flat[5] += 1
    return replace(true, epochs={**true.epochs, 0: flat})


class Pair:
    """A veteran who holds everything, a joiner who holds nothing, and the messages between them, one at a time."""

    def __init__(self, manifest: Manifest = RUN, *, held: tuple[bytes, ...] | None = None, **config: object) -> None:
        self.veteran = Node(manifest, signer(AUTHORS[0]), NodeConfig(), replica_of(manifest, held))
        joining = NodeConfig(**{"expects_peers": True, **config})  # type: ignore[arg-type]
        self.joiner = Node(manifest, signer(JOINER), joining, Replica(manifest))
        self.now_ms = 0
        self.done: list[Effect] = []  # by the joiner
        self._waiting: list[tuple[Node, MessageArrived]] = []
        for node in (self.veteran, self.joiner):
            self._take(node, node.handle(Ticked(), 0))
            self._take(node, node.handle(PeerJoined(peer=PeerId("other")), 0))

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Deliver messages, and let time pass where there is none, until the condition holds or nothing comes."""
        for _ in range(400):
            if until():
                return
            if self._waiting:
                node, event = self._waiting.pop(0)
                self._take(node, node.handle(event, self.now_ms))
            else:
                self.now_ms += 500
                for node in (self.veteran, self.joiner):
                    self._take(node, node.handle(Ticked(), self.now_ms))

    def _take(self, node: Node, effects: list[Effect]) -> None:
        self.done += effects if node is self.joiner else []
        other = self.veteran if node is self.joiner else self.joiner
        for effect in effects:
            if isinstance(effect, SendMessage):
                self._waiting.append((other, MessageArrived(peer=PeerId("other"), message=effect.message)))

    def of_joiner(self, kind: type[Effect]) -> Iterator[Effect]:
        """What the joiner wanted done, of one kind."""
        return (effect for effect in self.done if isinstance(effect, kind))


def make_live(node: Node, peer: PeerId) -> list[Effect]:
    """A neighbour says that it holds the very same; what the next tick brings."""
    ledger: Ledger = node.replica.ledger
    digest = node.replica.state_digest()
    head = Head(root=ledger.root(), state_digest=digest, updates=ledger.updates, step=FRONTIER, work_distance=0)
    node.handle(MessageArrived(peer=peer, message=head), 10)
    return node.handle(Ticked(), 20)
