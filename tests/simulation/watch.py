"""The invariants, watched from outside after every event. What the core says of itself is compared, never believed."""

from __future__ import annotations

from protocol import limits
from protocol.crypto.hashing import Author
from protocol.crypto.keys import SIGNATURE_BYTES
from protocol.events import (
    DropPeer,
    Halt,
    ReserveStep,
    SendMessage,
    StartEstimate,
    StoreRecords,
    StoreStatements,
    Ticked,
)
from protocol.node.node import Node
from protocol.wire import Head, PeerId, Records
from tests.simulation.holding import Handled, Life, Slot, require, slot_of
from tests.simulation.promises import Promises
from tests.simulation.snapshot_watch import SnapshotWatch


class Watch:
    """Sees every effect of every honest node."""

    def __init__(self, snapshots: SnapshotWatch, *, is_close: bool) -> None:
        self._is_close = is_close
        self._digest_of_root: dict[bytes, bytes] = {}
        self._set_of_root: dict[bytes, int] = {}
        self._root_of_set: dict[int, bytes] = {}
        self._signed: dict[Slot, bytes] = {}
        self.promises = Promises()
        self.snapshots = snapshots
        self.acknowledged: dict[Slot, bytes] = {}
        self.partial = 0  # rounds begun with some directions only

    @property
    def forgetful(self) -> set[bytes]:
        """Authors whose disk lost what was durable: SPEC 12 promises them less."""
        return self.promises.forgetful

    def see(self, life: Life, node: Node, handled: Handled) -> None:
        """One event was handled; its effects are not yet carried out."""
        effects = handled.effects
        before = (life.holding.updates, life.holding.void_slots)
        for effect in effects:
            match effect:
                case StoreRecords():
                    self._see_stored(life, node, effect)
                case StoreStatements():
                    for statement in effect.statements:
                        life.holding.state(statement)
                case ReserveStep():
                    require(effect.step > life.reserved_step, f"step {effect.step} was reserved twice")
                    life.reserved_step = effect.step
                case StartEstimate():
                    require(effect.step == life.reserved_step, f"step {effect.step} is estimated without reservation")
                    self._see_directions(node, effect.directions)
                case SendMessage():
                    self._see_sent(life, node, effect)
                case DropPeer():
                    life.rejected += 1
                case Halt():
                    self.snapshots.see_halt(life, node, effect)
        is_shorter = any(isinstance(effect, StoreStatements) for effect in effects)
        self._check_ledger(life, node, (0, 0) if is_shorter else before)
        self.promises.see(life, node, handled)
        self.snapshots.see(life, node, handled)
        if effects or not isinstance(handled.event, Ticked):  # an idle tick, and most are, fills no table
            check_tables(node)

    def see_own(self, record: bytes) -> None:
        """A node's own record is durable: acknowledged, never to be lost."""
        slot, payload = slot_of(record), record[:-SIGNATURE_BYTES]
        if slot[0] in self.forgetful:
            return
        first = self._signed.setdefault(slot, payload)
        require(first == payload, f"an honest node signed two payloads for step {slot[1]}")
        self.acknowledged[slot] = payload
        self.promises.see_own(record)

    def compare_digests(self, life: Life, root: bytes, state_digest: bytes) -> None:
        """The root is a function of the set and back; the state digest is a function of the root."""
        known = self._digest_of_root.setdefault(root, state_digest)
        require(known == state_digest, "equal ledgers with different state digests")
        set_hash = life.holding.set_hash
        require(self._set_of_root.setdefault(root, set_hash) == set_hash, "different sets with equal roots")
        require(self._root_of_set.setdefault(set_hash, root) == root, "equal sets with different roots")

    def _see_directions(self, node: Node, directions: int) -> None:
        """SPEC 5.2: whole blocks, one at the least."""
        method = node.manifest.method
        is_whole = 0 < directions <= method.directions and directions % method.shares == 0
        require(is_whole, f"a round of {directions} of {method.directions} directions")
        self.partial += directions < method.directions

    def _see_stored(self, life: Life, node: Node, effect: StoreRecords) -> None:
        for record in effect.records:
            life.holding.add(record)
            life.accepted += 1
            if effect.is_own:
                require(slot_of(record)[0] == node.author, "another author's record was stored as an own one")
                require(slot_of(record)[1] == life.reserved_step, "a step was signed that was not the reserved one")

    def _see_sent(self, life: Life, node: Node, effect: SendMessage) -> None:
        if isinstance(effect.message, Head):
            self.compare_digests(life, effect.message.root, effect.message.state_digest)
        elif isinstance(effect.message, Records):
            for record in node.replica.ledger.codec.split_untrusted(effect.message.data):
                held = life.holding.payloads.get(slot_of(record), set())
                require(record[:-SIGNATURE_BYTES] in held, "a record was sent that was not stored before")

    def _check_ledger(self, life: Life, node: Node, before: tuple[int, int]) -> None:
        """The ledger holds what was stored, only grows, and was not bought with needless signature checks."""
        ledger, holding = node.replica.ledger, life.holding
        now = (ledger.updates, ledger.void_slots)
        require(now == (holding.updates, holding.void_slots), "the ledger holds other records than were stored")
        require(sum(now) >= sum(before) and now[1] >= before[1], "a ledger shrank, or a void slot came back")
        paid_for = life.loaded + life.accepted + life.rejected
        require(life.verified <= paid_for, f"{life.verified} signatures were verified for {paid_for} messages")
        if self._is_close and now != before:
            self.compare_digests(life, ledger.root(), node.replica.state_digest())


def check_tables(node: Node) -> None:
    """Every table of a node is within its bound. Reads private parts: this is an inspection."""
    neighbours = node.sync.peers
    queues = node._flood._queues
    require(len(queues) == neighbours, "a push queue without a neighbour, or the reverse")
    for queue in queues.values():
        require(len(queue) <= limits.PUSH_QUEUE_RECORDS_MAX, "a push queue exceeds its bound")
    authors = node.replica.ledger.authors()
    require(len(authors) <= node.manifest.authors_max, "the author table exceeds its bound")
    require(
        set(node.clock.authors._heard_ms) <= set(authors), "the step clock remembers an author that the ledger lacks"
    )
    claimed = node.sync._claims.taken
    asked = {slot for entry in node.sync._neighbours.values() if entry.session for slot in entry.session._asked}
    require(claimed <= asked, "a slot is claimed by no session")


def check_end(nodes: dict[PeerId, Node], watch: Watch) -> None:
    """All honest nodes hold one set and one state, in which no acknowledged update is missing."""
    roots = {node.replica.ledger.root() for node in nodes.values()}
    digests = {node.replica.state_digest() for node in nodes.values()}
    require(len(roots) == 1 and len(digests) == 1, "honest nodes ended with different ledgers or states")
    some = next(iter(nodes.values()))
    require(some.replica.replayed_digest() in digests, "a live node differs from one that only replays")
    for (author, step), payload in watch.acknowledged.items():
        if author in watch.forgetful:
            continue
        if step >= some.replica.ledger.roster.counts_until(Author(author)):
            require(not _records(some, author, step), "an update is held although its author is excluded")
            continue
        held = [record[:-SIGNATURE_BYTES] for record in _records(some, author, step)]
        require(held == [payload], "an own update was lost, or its slot is void")


def _records(node: Node, author: bytes, step: int) -> list[bytes]:
    bit = (1 << step % limits.SPAN_STEPS).to_bytes(limits.SPAN_STEPS // 8, "little")
    return list(node.replica.ledger.slots.records(step // limits.SPAN_STEPS, Author(author), bit))
