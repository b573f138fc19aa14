"""Door: `Dialler`. Finds peers and dials them: peer exchange, the local network, the router's port."""

from sfnode.network.discovery.dialler import Dialler
from sfnode.network.discovery.mdns import LocalDiscovery
from sfnode.network.discovery.peer_exchange import PeerExchange
from sfnode.network.discovery.port_mapping import MappingReport, NoMappingError, PortMapper, find_gateway
from sfnode.network.discovery.saved_peers import (
    decode_discouraged,
    decode_peers,
    encode_bootstraps,
    encode_rows,
    with_bootstraps,
)

__all__ = [
    "with_bootstraps",
    "encode_rows",
    "NoMappingError",
    "decode_peers",
    "decode_discouraged",
    "encode_bootstraps",
    "find_gateway",
    "Dialler",
    "LocalDiscovery",
    "MappingReport",
    "PeerExchange",
    "PortMapper",
]
