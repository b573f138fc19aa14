"""A network of node cores in one thread and virtual time, without sockets.

Links have a delay drawn for every message and keep the order. Everything crosses the wire format. No bandwidth and no
CPU time enter the virtual clock.
"""

import heapq
import random
from dataclasses import dataclass
from typing import Protocol

from protocol.events import DropPeer, Effect, Event, MessageArrived, PeerJoined, PeerLeft, SendMessage, Ticked
from protocol.wire import Message, PeerId, decode_untrusted, encode

TICK_MS = 50


class Core(Protocol):
    """Takes part in a network: a node core, or a peer that behaves like one as far as it suits them."""

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle one event; return its effects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualLink:
    """Says how messages travel: each takes a time drawn evenly from the range, and none overtakes another."""

    delay_ms_min: int = 20
    delay_ms_max: int = 100

    @property
    def delay_ms(self) -> float:
        """Return the mean delay."""
        return (self.delay_ms_min + self.delay_ms_max) / 2


class VirtualNetwork:
    """Passes messages and the time to cores. What else a core asks for, `carry_out` of a subclass may do.

    Attributes:
        dropped: who dropped whom, and why.
    """

    def __init__(self, *, seed: int, link: VirtualLink) -> None:
        self.now_ms = 0
        self.cores: dict[PeerId, Core] = {}
        self.dropped: list[tuple[PeerId, PeerId, str]] = []
        self._random = random.Random(seed)
        self._link = link
        self._links: set[tuple[PeerId, PeerId]] = set()
        self._last_arrival_ms: dict[tuple[PeerId, PeerId], int] = {}
        # When, in which order, to whom, and an event or a neighbour's message
        self._queue: list[tuple[int, int, PeerId, Event | tuple[PeerId, bytes]]] = []
        self._sequence = 0

    def add(self, name: str, core: Core) -> PeerId:
        """Add a core, which ticks from now on."""
        peer = PeerId(name)
        self.cores[peer] = core
        self.later(self._random.randrange(TICK_MS), peer, Ticked())
        return peer

    def connect(self, one: PeerId, other: PeerId) -> None:
        self._links |= {(one, other), (other, one)}
        self.give(one, PeerJoined(peer=other))
        self.give(other, PeerJoined(peer=one))

    def run(self, duration_ms: int) -> None:
        """Let this much virtual time pass."""
        end_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, name, coming = heapq.heappop(self._queue)
            if isinstance(coming, tuple):
                if (coming[0], name) in self._links:
                    self.arrive(coming[0], name, coming[1])
                continue
            self.give(name, coming)
            if isinstance(coming, Ticked):
                self.later(TICK_MS, name, coming)
        self.now_ms = end_ms

    def later(self, delay_ms: int, name: PeerId, coming: Event | tuple[PeerId, bytes]) -> None:
        """Give an event, or a neighbour's message, to a core after some time."""
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._sequence, name, coming))

    def give(self, name: PeerId, event: Event) -> None:
        """Let a core handle an event now, and carry out what it asks for."""
        for effect in self.cores[name].handle(event, self.now_ms):
            self.carry_out(name, effect)

    def carry_out(self, name: PeerId, effect: Effect) -> None:
        """Send messages and cut links; all other effects are left to subclasses."""
        if isinstance(effect, SendMessage):
            if (name, effect.peer) in self._links:
                self.send(name, effect.peer, effect.message)
        elif isinstance(effect, DropPeer):
            self.dropped.append((name, effect.peer, effect.reason))
            self._links -= {(name, effect.peer), (effect.peer, name)}
            self.give(effect.peer, PeerLeft(peer=name))
            self.give(name, PeerLeft(peer=effect.peer))

    def arrive(self, source: PeerId, name: PeerId, payload: bytes) -> None:
        """Give a neighbour's message to a core."""
        self.give(name, MessageArrived(peer=source, message=decode_untrusted(payload)))

    def send(self, source: PeerId, target: PeerId, message: Message) -> None:
        """Put a message on its way to a neighbour."""
        self.post(source, target, encode(message))

    def post(self, source: PeerId, target: PeerId, payload: bytes) -> None:
        """Let an encoded message arrive after the link's delay, and behind those that are on their way."""
        delay_ms = self._random.randint(self._link.delay_ms_min, self._link.delay_ms_max)
        arrival_ms = max(self.now_ms + delay_ms, self._last_arrival_ms.get((source, target), 0))
        self._last_arrival_ms[source, target] = arrival_ms
        self.later(arrival_ms - self.now_ms, target, (source, payload))
