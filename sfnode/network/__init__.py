"""Door: `Network`. A node's connections: libp2p host, sessions, known peers. Uses trio and libp2p, never torch."""

from typing import TYPE_CHECKING

from sfnode.lazy_faces import lazy_face
from sfnode.network.bundled_libp2p import prefer_bundled, provide_when_missing

prefer_bundled()  # both before any module of this package imports libp2p
provide_when_missing()

if TYPE_CHECKING:
    from sfnode.network import bounds, discovery, policy, saved_peers, sessions
    from sfnode.network.discovery import MappingReport
    from sfnode.network.memory_guard import MemoryConfig, MemoryState, resident_bytes, unknown_bytes
    from sfnode.network.network import Network
    from sfnode.network.network_config import NetworkConfig, Timings
    from sfnode.network.open_files import allowed_files, connections_max
    from sfnode.network.policy import Address, ip_groups
    from sfnode.network.reports import DialReport, NetworkStatistics, PeerState, Readiness
    from sfnode.network.sessions import (
        Channel,
        Download,
        OtherRunError,
        Pace,
        RefusedError,
        ServedRun,
        Traffic,
        Wanted,
        handshake,
    )
    from sfnode.network.transport import DialBack, DialError, Host, Link, LinkBrokenError, ReachAnswer, check_can_listen
else:
    __getattr__, __dir__ = lazy_face(__name__, __file__)
