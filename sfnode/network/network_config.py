"""The settings of a node's network: the operator's choices, and the waiting times of a session."""

from dataclasses import dataclass, field

from sfnode import __version__
from sfnode.network import bounds
from sfnode.network.memory_guard import MemoryConfig
from sfnode.network.policy import Address, NodeName, Origins, ip_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Waiting times of a session in seconds; tests shorten them."""

    hello_s: float = bounds.HELLO_S
    ping_interval_s: float = bounds.PING_INTERVAL_S
    dead_s: float = bounds.DEAD_S
    write_s: float = bounds.WRITE_S
    bye_s: float = bounds.BYE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """The settings of a node's network."""

    listen: tuple[Address, ...] = ()  # port 0: any free one; empty: outbound only
    bootstrap: tuple[Address, ...] = ()  # with a peer id; never forgotten
    announce: tuple[Address, ...] = ()  # announced to others in place of the listening addresses
    agent: str = f"sfnode/{__version__}"
    own_name: NodeName | None = None  # given to others; None: no name
    outbound_target: int = bounds.OUTBOUND_TARGET  # known peers are dialled until this many sessions are outbound
    outbound_max: int = bounds.OUTBOUND_MAX  # includes extra dials that re-check a bootstrap
    inbound_max: int = bounds.INBOUND_MAX  # a further dial is refused politely, or takes another's place
    neighbours_fixed: bool = False  # dial only ``bootstrap``, exchange no peers: for tests of topologies
    local_discovery: bool = False  # find peers on the local network by mDNS; never with ``neighbours_fixed``
    port_mapping: bool = False  # ask the router by UPnP to forward a port to this node
    upload_bytes_per_s: int = 0  # of frames to all peers together; 0: no limit
    origins: Origins = ip_groups.DEFAULT_ORIGINS  # which addresses count together
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    timings: Timings = field(default_factory=Timings)
