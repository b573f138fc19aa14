"""A network of real node cores in one thread and virtual time, with its traffic and its CPU time counted.

What they cost is counted beside the virtual clock, and does not enter it.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

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
    StoreSnapshot,
    Ticked,
)
from protocol.framing import LENGTH_BYTES
from protocol.node import Node, NodeConfig
from protocol.run import Manifest
from protocol.state import Replica
from protocol.wire import Head, Message, PeerId, Records, decode_untrusted, encode
from sfnode.api.virtual_network import VirtualLink, VirtualNetwork

_SOURCE = PeerId("source of updates")  # a neighbour of every node that is given one; it takes no messages


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


class CountedNetwork(VirtualNetwork):
    """Cores, links and virtual time; and what they cost."""

    def __init__(self, *, seed: int, link: VirtualLink, hops_max: int | None = None) -> None:
        super().__init__(seed=seed, link=link)
        self.traffic: defaultdict[tuple[PeerId, PeerId], VirtualTraffic] = defaultdict(VirtualTraffic)
        self.cpu_seconds: defaultdict[PeerId, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.stored_ms: defaultdict[bytes, dict[PeerId, int]] = defaultdict(dict)  # by record: who held it when
        self.copies: Counter[PeerId] = Counter()  # flooded records that arrived
        self._hops_max = hops_max
        self._hops: defaultdict[PeerId, dict[bytes, int]] = defaultdict(dict)

    def inject(self, at: PeerId, record: bytes) -> None:
        """``at`` is given an update as by a neighbour that has just made it."""
        self._hops[at][record] = 0
        self.give(at, PeerJoined(peer=_SOURCE))
        self.give(at, MessageArrived(peer=_SOURCE, message=Records(request=0, data=record)))
        self.give(at, PeerLeft(peer=_SOURCE))

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

    def arrive(self, source: PeerId, name: PeerId, payload: bytes) -> None:
        """Give a neighbour's message to a core; count its records."""
        started = time.thread_time()
        message = decode_untrusted(payload)
        kind = kind_of(message)
        self.cpu_seconds[name][kind] += time.thread_time() - started
        if isinstance(message, Records):
            self._count_records(source, name, message)
        self.give(name, MessageArrived(peer=source, message=message))

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

    def give(self, name: PeerId, event: Event) -> None:
        """Let a core handle an event now, and count what it takes."""
        started = time.thread_time()
        effects = self.cores[name].handle(event, self.now_ms)
        kind = "link"
        if isinstance(event, MessageArrived | Ticked):
            kind = kind_of(event.message) if isinstance(event, MessageArrived) else "tick"
        self.cpu_seconds[name][kind] += time.thread_time() - started
        for effect in effects:
            self.carry_out(name, effect)

    def carry_out(self, name: PeerId, effect: Effect) -> None:
        """Note when records were stored; say what nothing here can do, and keep no snapshots."""
        match effect:
            case SendMessage() | DropPeer():
                super().carry_out(name, effect)
            case StoreRecords():
                for record in effect.records:
                    self.stored_ms[record][name] = self.now_ms
            case StoreSnapshot():
                pass
            case _:
                say(f"{name}: {type(effect).__name__}")  # not the whole: it may hold a state

    def send(self, source: PeerId, target: PeerId, message: Message) -> None:
        """Put a message on its way, unless its records have come far enough; count it."""
        if self._hops_max is not None and isinstance(message, Records) and message.request == 0:
            message = self._within_hops(source, message)
            if not message.data:
                return
        started = time.thread_time()
        payload = encode(message)
        kind = kind_of(message)
        self.cpu_seconds[source][kind] += time.thread_time() - started
        self.traffic[source, target].count(kind, len(payload) + LENGTH_BYTES)
        self.post(source, target, payload)

    def _within_hops(self, source: PeerId, message: Records) -> Records:
        """The flooded records that may travel one hop more."""
        core = self.cores[source]
        assert isinstance(core, Node) and self._hops_max is not None
        size, held = core.replica.ledger.codec.record_bytes, self._hops[source]
        records = [message.data[start : start + size] for start in range(0, len(message.data), size)]
        return Records(request=0, data=b"".join(record for record in records if held[record] < self._hops_max))


def kind_of(message: Message) -> str:
    """What a message is for: flood, pull (records that were asked for), head, sync (all else)."""
    match message:
        case Records():
            return "flood" if message.request == 0 else "pull"
        case Head():
            return "head"
        case _:
            return "sync"
