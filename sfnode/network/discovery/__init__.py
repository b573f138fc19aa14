"""Door: `Dialler`. Finds peers and dials them: peer exchange, the local network, the router's port."""

from sfnode.network.discovery.dialler import Dialler
from sfnode.network.discovery.mdns import LocalDiscovery
from sfnode.network.discovery.peer_exchange import PeerExchange
from sfnode.network.discovery.port_mapping import MappingReport, NoMappingError, PortMapper, find_gateway
