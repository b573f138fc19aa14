"""What the network tells the node, and what the node may ask it about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from protocol.wire import Message, PeerId
from sfnode.network import bounds
from sfnode.network.memory_guard import MemoryConfig, MemoryState
from sfnode.network.sessions.channel import Timings


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConnected:
    """A session with a neighbour began. Of one peer there is never more than one at a time."""

    peer: PeerId
    is_outbound: bool  # we dialled
    agent: str  # untrusted text: the neighbour's program and version
    head_step: int  # untrusted: the step it was at


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerDisconnected:
    """The session ended; messages in flight may be lost in both directions."""

    peer: PeerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """A message of the application; comes between the peer's PeerConnected and PeerDisconnected."""

    peer: PeerId
    message: Message
    wire_bytes: int  # with its length prefix


NetworkEvent: TypeAlias = PeerConnected | PeerDisconnected | MessageReceived


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """How this node takes part in the network. Addresses are multiaddrs; OperatorError for malformed ones."""

    listen: tuple[str, ...] = ()  # /ip4/0.0.0.0/tcp/4001; port 0: any free one; empty: outbound only
    bootstrap: tuple[str, ...] = ()  # with /p2p/<peer id>; never forgotten
    announce: tuple[str, ...] = ()  # told to others in place of the listening addresses
    agent: str = "sfnode"
    outbound_target: int = bounds.OUTBOUND_TARGET  # dial known peers until so many sessions are ours
    outbound_max: int = bounds.OUTBOUND_MAX  # with those dialled to re-check a bootstrap
    inbound_max: int = bounds.INBOUND_MAX  # further dials are refused politely
    neighbours_fixed: bool = False  # dial ``bootstrap`` and no others, exchange no peers: for tests of topologies
    local_discovery: bool = False  # find peers on the local network by mDNS; never with ``neighbours_fixed``
    port_mapping: bool = False  # ask the router by UPnP to let peers in at the first address that is listened on
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    timings: Timings = field(default_factory=Timings)
