"""Reports of the network about itself: neighbours, addresses that do not work, totals."""

from dataclasses import dataclass
from typing import Protocol

from protocol.wire import PeerId
from sfnode.network.memory_guard import MemoryState
from sfnode.network.policy import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerState:
    """Holds the state of one neighbour: of its session, and of its ledger, which the node core knows.

    Attributes:
        name: how it is called here; empty: nobody has said.
        address: the address that this node dialled, or the IP address that the neighbour came from.
        is_outbound: whether this node dialled it.
        rtt_ms: round-trip time; None until the first pong.
        score: 0 or less; its penalties, which halve every ten minutes.
        bytes_in, bytes_out: of the wire protocol, in this session.
        updates: number that it held by its last report; None: no report yet.
        is_equal: whether it recently reported exactly the set of updates that this node held at that moment.
        own_updates_min: number of this node's own updates that it certainly holds: those that this node had when both
            last held the same set; None: they never did in this session.
    """

    peer: PeerId
    address: str
    is_outbound: bool
    agent: str
    rtt_ms: float | None
    score: float
    bytes_in: int
    bytes_out: int
    updates: int | None = None
    is_equal: bool = False
    own_updates_min: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialReport:
    """Describes to the operator why the last dial to an address failed."""

    address: str  # with the peer id
    reason: str
    failures: int  # in a row
    retry_in_s: float  # until the next dial, from the moment of the failure
    is_expected: bool = True  # a bootstrap, or reached before; others can be invented, by anybody on the local network


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkStatistics:
    """Holds the figures of the network, totals since its start.

    Attributes:
        bytes_in, bytes_out: frames of the wire protocol with length prefix, without Noise, yamux and TCP.
        sessions_inbound, sessions_outbound: running now.
        streams_failed: ended by an exception.
        streams_refused: beyond the number that one peer may have open.
        memory: of this process, without its worker, and whether inbound neighbours are refused for it.
        expects_peers: whether the node knows of others: bootstraps, or peers that it met, now or before its start.
        unreached: the address that failed most often, and why; empty: none.
    """

    bytes_in: int
    bytes_out: int
    frames_in: int
    frames_out: int
    sessions_inbound: int
    sessions_outbound: int
    streams_failed: int
    streams_refused: int
    memory: MemoryState
    expects_peers: bool
    unreached: str


class Readiness(Protocol):
    """The task status that nursery.start passes to ``Network.run``.

    It stands for trio.TaskStatus, which is missing from the stubs that libp2p installs.
    """

    def started(self, value: tuple[Address, ...], /) -> None:
        """Report that the network is up; nursery.start returns ``value``."""
