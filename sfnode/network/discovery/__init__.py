"""Door: `Dialler`. Finds peers and dials them: peer exchange, the local network, the router's port."""

from sfnode.network.discovery.dialler import Dialler as Dialler
from sfnode.network.discovery.mdns import LocalDiscovery as LocalDiscovery
from sfnode.network.discovery.peer_exchange import PeerExchange as PeerExchange
from sfnode.network.discovery.port_mapping import (
    MappingReport as MappingReport,
    NoMappingError as NoMappingError,
    PortMapper as PortMapper,
    find_gateway as find_gateway,
)
