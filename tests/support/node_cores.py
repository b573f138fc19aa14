"""One node core for tests: made in a line, told things, and its effects sorted."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.crypto.hashing import seed_of
from protocol.crypto.keys import Signer
from protocol.events import Effect, MessageArrived, PeerJoined, ReserveStep, SendMessage, StartEstimate, Ticked
from protocol.ledger.ledger import Ledger
from protocol.node.node import Node
from protocol.node.node_config import NodeConfig
from protocol.run.manifest import Manifest
from protocol.state.replica import Replica
from protocol.sync.anti_entropy import Request, answer
from protocol.wire import Head, Message, PeerId, PullRequest, Records
from tests.support.ledgers import add, ledger_of
from tests.support.manifests import small_manifest

MANIFEST = small_manifest()
ME = Signer(b"me".ljust(32, b"."))
X, Y = PeerId("x"), PeerId("y")
OTHER_STATE = b"\7" * 32


def node(
    *, manifest: Manifest = MANIFEST, records: Sequence[bytes] = (), is_asleep: bool = False, **config: object
) -> Node:
    """A node with a free worker that has seen its first tick, unless it sleeps."""
    replica = Replica(manifest)
    for record in records:
        add(replica.ledger, record)
    made = Node(manifest, ME, NodeConfig(**config), replica)  # type: ignore[arg-type]
    if not is_asleep:
        made.handle(Ticked(), 0)
    return made


def own(step: int, *scalars: int, manifest: Manifest = MANIFEST) -> bytes:
    return Ledger(manifest).codec.seal(ME, step, scalars or (5,)).record


def join(target: Node, *peers: PeerId, now_ms: int = 0) -> None:
    for peer in peers:
        target.handle(PeerJoined(peer=peer), now_ms)


def join_live(target: Node, *peers: PeerId) -> None:
    """Neighbours come, and the first says that it holds what the node holds: the node is live."""
    join(target, *peers)
    tell(target, peers[0], head_of(target.replica.ledger, target.replica.state_digest()), 0)


def tell(target: Node, peer: PeerId, message: Message, now_ms: int) -> list[Effect]:
    return target.handle(MessageArrived(peer=peer, message=message), now_ms)


def pushed(*records: bytes) -> Records:
    return Records(request=0, data=b"".join(records))


def head_of(ledger: Ledger, state_digest: bytes, work_distance: int = 0) -> Head:
    return Head(
        root=ledger.root(),
        state_digest=state_digest,
        updates=ledger.updates,
        step=0,
        work_distance=work_distance,
    )


def other_head(*records: bytes) -> Head:
    """The head of a neighbour that holds these records."""
    return head_of(ledger_of(MANIFEST, list(records)), OTHER_STATE)


def start_effects(step: int, manifest: Manifest = MANIFEST) -> list[Effect]:
    seed = seed_of(manifest.run_id, ME.author, step)
    return [ReserveStep(step=step), StartEstimate(step=step, seed=seed, directions=manifest.method.directions)]


def without_heads(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if not (isinstance(effect, SendMessage) and isinstance(effect.message, Head))]


def sent(effects: list[Effect], kind: type[Message]) -> list[tuple[PeerId, Message]]:
    return [(e.peer, e.message) for e in effects if isinstance(e, SendMessage) and isinstance(e.message, kind)]


def next_request(effects: list[Effect]) -> Request | None:
    found = [e.message for e in without_heads(effects) if isinstance(e, SendMessage)]
    return found[0] if found else None  # type: ignore[return-value]


def ask(target: Node, peer: PeerId, full: Ledger, now_ms: int) -> PullRequest | None:
    """Let ``target`` ask ``peer``, who holds ``full``, until it wants records; None when it wants none."""
    request = next_request(tell(target, peer, head_of(full, OTHER_STATE), now_ms))
    while request:
        if isinstance(request, PullRequest):
            return request
        request = next_request(tell(target, peer, answer(full, request)[0], now_ms))
    return None
