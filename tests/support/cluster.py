"""A whole network of real node cores in one thread and virtual time: the smallest deterministic simulation.

Messages cross seeded links; the worker is a fake whose scalars follow from (seed, state digest), so that an estimate on
the wrong state shows up as another history. Disks are Python lists that keep what was made durable.
"""

from __future__ import annotations

import heapq
import random
from contextlib import suppress
from dataclasses import dataclass, field

from protocol.crypto.keys import Signer
from protocol.errors import Ignore
from protocol.events import (
    DropPeer,
    Effect,
    EstimateFinished,
    Event,
    Halt,
    MessageArrived,
    PeerJoined,
    PeerLeft,
    ReserveStep,
    SendMessage,
    StartEstimate,
    StatementSubmitted,
    StoreRecords,
    StoreStatements,
    Ticked,
    WorkerReady,
)
from protocol.node.node import Node
from protocol.node.node_config import NodeConfig
from protocol.run.manifest import Manifest
from protocol.state.replica import Replica
from protocol.subspace.philox import words
from protocol.wire import PeerId, Records, decode_untrusted, encode

TICK_MS = 50


@dataclass
class Disk:
    """What a host keeps over a crash."""

    records: list[bytes] = field(default_factory=list)
    statements: list[bytes] = field(default_factory=list)
    reserved_step: int = -1


class Host:
    """One simulated machine: a disk, and a node core while it is up."""

    def __init__(self, name: str, manifest: Manifest, *, is_training: bool = True) -> None:
        self.name = PeerId(name)
        self.manifest = manifest
        self.signer = Signer(name.encode().ljust(32, b"."))
        self.disk = Disk()
        self.is_training = is_training
        self.node: Node | None = None
        self.halted: str | None = None
        self.dropped: list[tuple[PeerId, str]] = []
        self.signed: dict[int, set[tuple[int, ...]]] = {}

    def boot(self, *, expects_peers: bool) -> Node:
        """Start from the disk alone."""
        replica = Replica(self.manifest)
        for statement in self.disk.statements:
            replica.add_statement(statement)
        for record in self.disk.records:
            with suppress(Ignore):  # excluded since
                replica.add(record)
        config = NodeConfig(
            is_training=self.is_training, expects_peers=expects_peers, reserved_step=self.disk.reserved_step
        )
        self.node = Node(self.manifest, self.signer, config, replica)
        return self.node


class Cluster:
    """Hosts, links and virtual time."""

    def __init__(self, manifest: Manifest, *, seed: int, estimate_ms: int = 120, loss: float = 0.0) -> None:
        self.manifest = manifest
        self.random = random.Random(seed)
        self.estimate_ms = estimate_ms
        self.loss = loss
        self.now_ms = 0
        self.hosts: dict[PeerId, Host] = {}
        self.links: set[frozenset[PeerId]] = set()
        self.messages = 0
        self._last_arrival_ms: dict[tuple[PeerId, PeerId], int] = {}
        self._queue: list[tuple[int, int, PeerId, Node, Event]] = []
        self._sequence = 0

    def add(self, name: str, *, expects_peers: bool = False, is_training: bool = True) -> Host:
        host = Host(name, self.manifest, is_training=is_training)
        self.hosts[host.name] = host
        self.boot(host, expects_peers=expects_peers)
        return host

    def boot(self, host: Host, *, expects_peers: bool) -> None:
        node = host.boot(expects_peers=expects_peers)
        self._schedule(0, host, node, WorkerReady())
        self._schedule(self.random.randrange(TICK_MS), host, node, Ticked())

    def crash(self, host: Host) -> None:
        host.node = None
        for link in [link for link in self.links if host.name in link]:
            self.unlink(*sorted(link))

    def link(self, a: str, b: str) -> None:
        pair = frozenset((PeerId(a), PeerId(b)))
        if pair not in self.links:
            self.links.add(pair)
            self._tell(PeerId(a), PeerJoined(peer=PeerId(b)))
            self._tell(PeerId(b), PeerJoined(peer=PeerId(a)))

    def unlink(self, a: str, b: str) -> None:
        self.links.discard(frozenset((PeerId(a), PeerId(b))))
        self._tell(PeerId(a), PeerLeft(peer=PeerId(b)))
        self._tell(PeerId(b), PeerLeft(peer=PeerId(a)))

    def push(self, source: str, target: str, record: bytes) -> None:
        """``source`` floods a record of anybody's to its neighbour ``target``."""
        self._carry(PeerId(source), SendMessage(peer=PeerId(target), message=Records(request=0, data=record)))

    def state(self, name: str, statement: bytes) -> None:
        """The owner leaves a statement on one host."""
        self._tell(PeerId(name), StatementSubmitted(statement=statement))

    def node(self, name: str) -> Node:
        """The core of a host that is up."""
        node = self.hosts[PeerId(name)].node
        assert node is not None
        return node

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, name, node, event = heapq.heappop(self._queue)
            host = self.hosts[name]
            if host.node is not node or host.halted is not None:
                continue  # meant for an earlier life of this host
            self._perform(host, node, node.handle(event, self.now_ms))
            if isinstance(event, Ticked):
                self._schedule(TICK_MS, host, node, event)
        self.now_ms = end_ms

    def run_until_agreement(self, limit_ms: int) -> int:
        """Run until all hosts are finished and hold the same root; returns the virtual milliseconds it took."""
        start_ms = self.now_ms
        while self.now_ms - start_ms < limit_ms:
            self.run(1_000)
            nodes = [host.node for host in self.hosts.values() if host.node]
            if all(node.is_finished for node in nodes) and len({node.replica.ledger.root() for node in nodes}) == 1:
                return self.now_ms - start_ms
        raise AssertionError(f"no agreement within {limit_ms} virtual ms")

    def digests(self) -> set[bytes]:
        return {host.node.replica.state_digest() for host in self.hosts.values() if host.node}

    def _tell(self, name: PeerId, event: Event) -> None:
        host = self.hosts[name]
        if host.node:
            self._perform(host, host.node, host.node.handle(event, self.now_ms))

    def _schedule(self, delay_ms: int, host: Host, node: Node, event: Event) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._sequence, host.name, node, event))

    def _perform(self, host: Host, node: Node, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case StoreRecords():
                    host.disk.records.extend(effect.records)
                case StoreStatements():
                    host.disk.statements.extend(effect.statements)
                case ReserveStep():
                    assert effect.step > host.disk.reserved_step, "a step was reserved twice"
                    host.disk.reserved_step = effect.step
                case StartEstimate():
                    scalars = self._scalars(effect.seed, node)
                    host.signed.setdefault(effect.step, set()).add(scalars)
                    delay_ms = self.estimate_ms + self.random.randrange(self.estimate_ms)
                    self._schedule(delay_ms, host, node, EstimateFinished(step=effect.step, scalars=scalars))
                case SendMessage():
                    self._carry(host.name, effect)
                case DropPeer():
                    host.dropped.append((effect.peer, effect.reason))
                    self.unlink(host.name, effect.peer)
                case Halt():
                    host.halted = effect.detail

    def _carry(self, source: PeerId, effect: SendMessage) -> None:
        target = self.hosts[effect.peer]
        if frozenset((source, effect.peer)) not in self.links or target.node is None:
            return
        self.messages += 1
        if self.random.random() < self.loss:
            return
        message = decode_untrusted(encode(effect.message))  # everything crosses the wire format
        arrival_ms = max(
            self.now_ms + self.random.randrange(5, 60), self._last_arrival_ms.get((source, effect.peer), 0)
        )
        self._last_arrival_ms[source, effect.peer] = arrival_ms  # a stream delivers in order
        self._schedule(arrival_ms - self.now_ms, target, target.node, MessageArrived(peer=source, message=message))

    def _scalars(self, seed: int, node: Node) -> tuple[int, ...]:
        method = self.manifest.method
        state = int.from_bytes(node.replica.state_digest()[:8], "big")
        drawn = words(seed ^ state, method.scalars)
        return tuple(int(word) % (2 * method.clip + 1) - method.clip for word in drawn)
