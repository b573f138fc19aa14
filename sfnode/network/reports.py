"""What the network tells of itself when it is asked: neighbours, addresses that do not work, totals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from protocol.wire import PeerId
from sfnode.network.memory_guard import MemoryState


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourInfo:
    """One running session."""

    peer: PeerId
    address: str  # where we reached it, or the IP address that it came from
    is_outbound: bool
    agent: str
    bytes_in: int
    bytes_out: int
    rtt_ms: float | None  # None until the first pong
    score: float  # at most 0: what it did wrong lately


@dataclass(frozen=True, slots=True, kw_only=True)
class DialReport:
    """Why an address could not be used the last time, for the operator."""

    address: str  # with the peer id
    reason: str
    failures: int  # in a row
    retry_in_s: float  # from the moment of the failure


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkStatistics:
    """Totals since start, of the wire protocol (frames with length prefix), without Noise, yamux and TCP."""

    bytes_in: int
    bytes_out: int
    frames_in: int
    frames_out: int
    sessions_inbound: int  # running now
    sessions_outbound: int
    streams_failed: int  # ended by an exception in a handler
    streams_refused: int  # more at once than one peer may have
    memory: MemoryState  # of this process, and whether neighbours go for it


class Readiness(Protocol):
    """What nursery.start hands to a task (trio.TaskStatus, which the stubs that libp2p brings along do not know)."""

    def started(self, value: tuple[str, ...], /) -> None:
        """The network is up; ``value`` is the result of nursery.start."""
