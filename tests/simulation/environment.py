"""What every part of the simulated world shares: virtual time, seeded chance, the trace, and who is there."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from protocol.wire import PeerId
from tests.simulation.holding import require
from tests.simulation.scenario import Fault, Scenario, SnapshotEvent, stream

Part = bytes | str | int
EVENTS_MAX = 400_000  # ten times what the busiest seeds take


class Peer(Protocol):
    """A machine at the end of a link."""

    name: PeerId
    is_hostile: bool

    @property
    def is_up(self) -> bool:
        """Whether a process runs there."""

    def receive(self, source: PeerId, data: bytes) -> None:
        """A frame has come from a neighbour."""

    def peer_joined(self, peer: PeerId) -> None:
        """A session is open."""

    def peer_left(self, peer: PeerId, delay_ms: int) -> None:
        """A session is over; the process hears of it after a while."""

    def serve(self, sha256: bytes) -> bytes | None:
        """The snapshot with this hash, as it is sent to a peer that asks for it; None where there is none."""


class Carrier(Protocol):
    """A link, as its ends see it."""

    def carry(self, source: PeerId, data: bytes) -> None:
        """Send a frame to the other end. It may be lost."""

    def down(self, dying: PeerId | None = None) -> None:
        """Break the connection; what the ``dying`` end sent before still arrives."""

    def ban(self) -> None:
        """Break it for good."""


class Environment:
    """Virtual time and everything that is drawn by chance. One seed gives one history."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.now_ms = 0
        self.is_faulty = True  # until the faults stop
        self.injected: Counter[Fault] = Counter()
        self.snapshots: Counter[SnapshotEvent] = Counter()
        self.events = 0
        self.signatures = 0  # verified so far, by anybody
        self.log: Callable[[int, tuple[Part, ...]], None] | None = None  # told of whatever is traced
        self.hosts: dict[PeerId, Peer] = {}
        self.links: dict[frozenset[PeerId], Carrier] = {}
        self.random = stream(scenario.seed, "network")
        self._trace = hashlib.sha256()
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    def schedule(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Let ``action`` happen after ``delay_ms``; of several at one time the first scheduled comes first."""
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._sequence, action))

    def run_until(self, end_ms: int) -> None:
        """Let everything happen that is due until then."""
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._queue)
            self.events += 1
            require(self.events <= EVENTS_MAX, f"{EVENTS_MAX:,} events and no end: messages breed messages")
            action()
        self.now_ms = end_ms

    def link(self, a: PeerId, b: PeerId) -> Carrier:
        """The link between two neighbours."""
        return self.links[frozenset((a, b))]

    def count(self, fault: Fault) -> None:
        """A fault has just happened."""
        self.injected[fault] += 1
        self.trace("fault", fault)

    def tell(self, event: SnapshotEvent) -> None:
        """Something has become of a snapshot."""
        self.snapshots[event] += 1
        self.trace("snapshot", event)

    def trace(self, *parts: Part) -> None:
        """Whatever happens goes into one hash: two runs of a seed are equal, or the hash tells."""
        if self.log is not None:
            self.log(self.now_ms, parts)
        self._trace.update(self.now_ms.to_bytes(8, "big"))
        for part in parts:
            data = part if isinstance(part, bytes) else str(part).encode()
            self._trace.update(len(data).to_bytes(4, "big") + data)

    @property
    def trace_hash(self) -> str:
        """Hash of the whole history so far."""
        return self._trace.hexdigest()[:32]
