"""Door: `Network`. A node's connections: libp2p host, sessions, known peers. Uses trio and libp2p, never torch."""

from typing import TYPE_CHECKING

from sfnode import lazy_face
from sfnode.network.bundled_libp2p import prefer_bundled
from sfnode.network.fastecdsa_placeholder import provide_when_missing

prefer_bundled()  # both before any module of this package imports libp2p
provide_when_missing()

if TYPE_CHECKING:
    from sfnode.network import (
        bounds as bounds,
        discovery as discovery,
        policy as policy,
        saved_peers as saved_peers,
        sessions as sessions,
    )
    from sfnode.network.discovery import (
        MappingReport as MappingReport,
        NoMappingError as NoMappingError,
    )
    from sfnode.network.memory_guard import (
        MemoryConfig as MemoryConfig,
        MemoryState as MemoryState,
        resident_bytes as resident_bytes,
        unknown_bytes as unknown_bytes,
    )
    from sfnode.network.network import Network as Network
    from sfnode.network.network_config import NetworkConfig as NetworkConfig, Timings as Timings
    from sfnode.network.open_files import allowed_files as allowed_files, connections_max as connections_max
    from sfnode.network.policy import Address as Address, ip_groups as ip_groups
    from sfnode.network.reports import (
        DialReport as DialReport,
        NetworkStatistics as NetworkStatistics,
        PeerState as PeerState,
        Readiness as Readiness,
    )
    from sfnode.network.sessions import (
        Channel as Channel,
        Download as Download,
        OtherRunError as OtherRunError,
        Pace as Pace,
        RefusedError as RefusedError,
        ServedRun as ServedRun,
        Traffic as Traffic,
        Wanted as Wanted,
        handshake as handshake,
    )
    from sfnode.network.transport import (
        DialBack as DialBack,
        DialError as DialError,
        Host as Host,
        Link as Link,
        LinkBrokenError as LinkBrokenError,
        ReachAnswer as ReachAnswer,
        check_can_listen as check_can_listen,
        share_port as share_port,
    )
else:
    __getattr__, __dir__ = lazy_face(__name__, __file__)
