"""Reports of the network about itself: neighbours, addresses that do not work, totals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from protocol.wire import PeerId
from sfnode.network.memory_guard import MemoryState


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourInfo:
    """Describes one running session."""

    peer: PeerId
    address: str  # the address that we dialled, or the IP address from which the peer came
    is_outbound: bool
    agent: str
    bytes_in: int
    bytes_out: int
    rtt_ms: float | None  # None until the first pong
    score: float  # at most 0; recent faults lower it


@dataclass(frozen=True, slots=True, kw_only=True)
class DialReport:
    """Describes to the operator why the last dial to an address failed."""

    address: str  # with the peer id
    reason: str
    failures: int  # in a row
    retry_in_s: float  # from the moment of the failure


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkStatistics:
    """Totals of the network since its start. Bytes are frames with length prefix, without Noise, yamux and TCP."""

    bytes_in: int
    bytes_out: int
    frames_in: int
    frames_out: int
    sessions_inbound: int  # running now
    sessions_outbound: int
    streams_failed: int  # ended by an exception
    streams_refused: int  # beyond the number that one peer may have open
    memory: MemoryState  # of this process, and whether inbound neighbours are refused for it


class Readiness(Protocol):
    """The task status that nursery.start passes to ``Network.run``.

    It stands for trio.TaskStatus, which is missing from the stubs that libp2p installs.
    """

    def started(self, value: tuple[str, ...], /) -> None:
        """Report that the network is up; nursery.start returns ``value``."""
