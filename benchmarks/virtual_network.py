"""A network of real node cores in one thread and virtual time, with its traffic and its CPU time counted.

Links have a delay drawn for every message and keep the order. Everything crosses the wire format. No bandwidth and no
CPU time enter the virtual clock: what they cost is counted beside it.
"""

from __future__ import annotations

import heapq
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.measures import say
from protocol.crypto import Signer
from protocol.events import (
    DropPeer,
    Effect,
    Event,
    MessageArrived,
    PeerJoined,
    PeerLeft,
    SendMessage,
    StoreRecords,
    Ticked,
)
from protocol.framing import LENGTH_BYTES
from protocol.node import Node, NodeConfig
from protocol.run import Manifest
from protocol.state import Replica
from protocol.wire import Head, Message, PeerId, Records, decode_untrusted, encode

TICK_MS = 50
_SOURCE = PeerId("source of updates")  # a neighbour of every node that is given one; it takes no messages


class Core(Protocol):
    """What takes part: a node core, or a peer that behaves like one as far as it suits them."""

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """One event in, effects out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualLink:
    """How messages travel: each takes a time drawn evenly from the range, and none overtakes another."""

    delay_ms_min: int = 20
    delay_ms_max: int = 100

    @property
    def delay_ms(self) -> float:
        """Mean delay."""
        return (self.delay_ms_min + self.delay_ms_max) / 2


@dataclass(slots=True)
class VirtualTraffic:
    """Messages and bytes (frame headers included) by kind: flood, pull, head, sync."""

    messages: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)

    def count(self, kind: str, size: int) -> None:
        """One more message."""
        self.messages[kind] += 1
        self.bytes[kind] += size


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Messages and bytes by kind, and CPU seconds, of all cores together."""

    messages: Counter[str]
    bytes: Counter[str]
    cpu_seconds: float


def idle_node(manifest: Manifest, name: str, replica: Replica | None = None) -> Node:
    """A node that relays and stores but does not train."""
    config = NodeConfig(is_training=False, expects_peers=True)
    return Node(manifest, Signer(name.encode().ljust(32, b".")), config, replica or Replica(manifest))


class VirtualNetwork:
    """Cores, links and virtual time."""

    def __init__(self, *, seed: int, link: VirtualLink, hops_max: int | None = None) -> None:
        self.now_ms = 0
        self.cores: dict[PeerId, Core] = {}
        self.traffic: defaultdict[tuple[PeerId, PeerId], VirtualTraffic] = defaultdict(VirtualTraffic)
        self.cpu_seconds: defaultdict[PeerId, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.stored_ms: defaultdict[bytes, dict[PeerId, int]] = defaultdict(dict)  # by record: who held it when
        self.copies: Counter[PeerId] = Counter()  # flooded records that arrived
        self.dropped: list[tuple[PeerId, PeerId, str]] = []
        self._random = random.Random(seed)
        self._link = link
        self._hops_max = hops_max
        self._hops: defaultdict[PeerId, dict[bytes, int]] = defaultdict(dict)
        self._links: set[tuple[PeerId, PeerId]] = set()
        self._last_arrival_ms: dict[tuple[PeerId, PeerId], int] = {}
        self._queue: list[tuple[int, int, PeerId, PeerId | None, bytes | None]] = []
        self._sequence = 0

    # --- building -----------------------------------------------------------------------------------------

    def add(self, name: str, core: Core) -> PeerId:
        """One more core; it ticks from now on."""
        peer = PeerId(name)
        self.cores[peer] = core
        self._schedule(self._random.randrange(TICK_MS), peer, None, None)
        return peer

    def connect(self, one: PeerId, other: PeerId) -> None:
        """Open the link between two cores."""
        self._links |= {(one, other), (other, one)}
        self._give(one, PeerJoined(peer=other), "link")
        self._give(other, PeerJoined(peer=one), "link")

    def inject(self, at: PeerId, record: bytes) -> None:
        """``at`` is given an update as by a neighbour that has just made it."""
        self._hops[at][record] = 0
        self._give(at, PeerJoined(peer=_SOURCE), "link")
        self._give(at, MessageArrived(peer=_SOURCE, message=Records(request=0, data=record)), "flood")
        self._give(at, PeerLeft(peer=_SOURCE), "link")

    def take_counts(self) -> Counts:
        """What all cores have sent and computed since the last call, injections left out."""
        links, cores = [*self.traffic.values()], [*self.cpu_seconds.values()]
        counts = Counts(
            messages=sum((link.messages for link in links), Counter()),
            bytes=sum((link.bytes for link in links), Counter()),
            cpu_seconds=sum(seconds for core in cores for kind, seconds in core.items() if kind != "link"),
        )
        self.traffic.clear()
        self.cpu_seconds.clear()
        return counts

    # --- running ------------------------------------------------------------------------------------------

    def run(self, duration_ms: int) -> None:
        """Let so much virtual time pass."""
        end_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, name, source, payload = heapq.heappop(self._queue)
            if payload is None or source is None:
                self._give(name, Ticked(), "tick")
                self._schedule(TICK_MS, name, None, None)
            elif (source, name) in self._links:
                self._arrive(source, name, payload)
        self.now_ms = end_ms

    def _arrive(self, source: PeerId, name: PeerId, payload: bytes) -> None:
        started = time.thread_time()
        message = decode_untrusted(payload)
        kind = kind_of(message)
        self.cpu_seconds[name][kind] += time.thread_time() - started
        if isinstance(message, Records):
            self._count_records(source, name, message)
        self._give(name, MessageArrived(peer=source, message=message), kind)

    def _count_records(self, source: PeerId, name: PeerId, message: Records) -> None:
        core = self.cores[name]
        if not isinstance(core, Node):
            return
        size = core.replica.ledger.codec.record_bytes
        records = [message.data[start : start + size] for start in range(0, len(message.data), size)]
        if message.request == 0:
            self.copies[name] += len(records)
        if self._hops_max is not None:
            for record in records:
                # What anti-entropy brings is not flooded on: that is what the limit leaves to it.
                hops = self._hops[source].get(record, 0) + 1 if message.request == 0 else self._hops_max
                self._hops[name].setdefault(record, hops)

    def _give(self, name: PeerId, event: Event, kind: str) -> None:
        started = time.thread_time()
        effects = self.cores[name].handle(event, self.now_ms)
        self.cpu_seconds[name][kind] += time.thread_time() - started
        for effect in effects:
            match effect:
                case SendMessage():
                    self._send(name, effect.peer, effect.message)
                case StoreRecords():
                    for record in effect.records:
                        self.stored_ms[record][name] = self.now_ms
                case DropPeer():
                    self._cut(name, effect)
                case _:
                    say(f"{name}: {effect}")

    def _send(self, source: PeerId, target: PeerId, message: Message) -> None:
        if (source, target) not in self._links:
            return
        if self._hops_max is not None and isinstance(message, Records) and message.request == 0:
            message = self._within_hops(source, message)
            if not message.data:
                return
        started = time.thread_time()
        payload = encode(message)
        kind = kind_of(message)
        self.cpu_seconds[source][kind] += time.thread_time() - started
        self.traffic[source, target].count(kind, len(payload) + LENGTH_BYTES)
        delay_ms = self._random.randint(self._link.delay_ms_min, self._link.delay_ms_max)
        arrival_ms = max(self.now_ms + delay_ms, self._last_arrival_ms.get((source, target), 0))
        self._last_arrival_ms[source, target] = arrival_ms
        self._schedule(arrival_ms - self.now_ms, target, source, payload)

    def _within_hops(self, source: PeerId, message: Records) -> Records:
        """The flooded records that may travel one hop more."""
        core = self.cores[source]
        assert isinstance(core, Node) and self._hops_max is not None
        size, held = core.replica.ledger.codec.record_bytes, self._hops[source]
        records = [message.data[start : start + size] for start in range(0, len(message.data), size)]
        return Records(request=0, data=b"".join(record for record in records if held[record] < self._hops_max))

    def _cut(self, name: PeerId, effect: DropPeer) -> None:
        self.dropped.append((name, effect.peer, effect.reason))
        self._links -= {(name, effect.peer), (effect.peer, name)}
        self._give(effect.peer, PeerLeft(peer=name), "link")
        self._give(name, PeerLeft(peer=effect.peer), "link")

    def _schedule(self, delay_ms: int, target: PeerId, source: PeerId | None, payload: bytes | None) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._sequence, target, source, payload))


def kind_of(message: Message) -> str:
    """What a message is for: flood, pull (records that were asked for), head, sync (all else)."""
    match message:
        case Records():
            return "flood" if message.request == 0 else "pull"
        case Head():
            return "head"
        case _:
            return "sync"
