"""Door: `Network`. A node's connections: libp2p host, sessions, known peers. Uses trio and libp2p, never torch."""

from sfnode.network.fastecdsa_placeholder import provide_when_missing

provide_when_missing()  # before any module of this package imports libp2p

from sfnode.network.bounds import CONNECTIONS_MAX, DATA_FILE_BYTES_MAX, MEMORY_BYTES_MAX
from sfnode.network.discovery import (
    MappingReport,
    NoMappingError,
    decode_discouraged,
    decode_peers,
    encode_bootstraps,
    encode_rows,
    find_gateway,
    with_bootstraps,
)
from sfnode.network.memory_guard import MemoryConfig, MemoryState, resident_bytes
from sfnode.network.network import Network
from sfnode.network.network_config import NetworkConfig, Timings
from sfnode.network.open_files import allowed_files, connections_max
from sfnode.network.policy import (
    Address,
    author_of_peer,
    parse_address,
    parse_announce,
    parse_bootstrap,
    parse_listen,
    parse_origins,
    peer_of_author,
)
from sfnode.network.reports import DialReport, NeighbourInfo, Readiness
from sfnode.network.sessions import (
    FULL,
    OBSERVER_RUN_ID,
    OTHER_VERSION,
    Ask,
    Channel,
    Download,
    FileSource,
    OtherRunError,
    Pace,
    PacedFile,
    RefusedError,
    ServedRun,
    Traffic,
    Wanted,
    exchange_hello,
    fetch,
    own_hello,
)
from sfnode.network.transport import (
    DialBack,
    DialError,
    Host,
    Link,
    LinkBrokenError,
    ReachAnswer,
    check_can_listen,
    share_port,
)

__all__ = [
    "Address",
    "Ask",
    "CONNECTIONS_MAX",
    "DATA_FILE_BYTES_MAX",
    "Channel",
    "DialBack",
    "DialError",
    "DialReport",
    "Download",
    "FULL",
    "FileSource",
    "Host",
    "Link",
    "LinkBrokenError",
    "MEMORY_BYTES_MAX",
    "MappingReport",
    "MemoryConfig",
    "MemoryState",
    "NeighbourInfo",
    "Network",
    "NetworkConfig",
    "NoMappingError",
    "OBSERVER_RUN_ID",
    "OTHER_VERSION",
    "OtherRunError",
    "Pace",
    "PacedFile",
    "ReachAnswer",
    "Readiness",
    "RefusedError",
    "ServedRun",
    "Timings",
    "Traffic",
    "Wanted",
    "allowed_files",
    "author_of_peer",
    "check_can_listen",
    "connections_max",
    "decode_discouraged",
    "decode_peers",
    "encode_bootstraps",
    "encode_rows",
    "exchange_hello",
    "fetch",
    "find_gateway",
    "own_hello",
    "parse_address",
    "parse_announce",
    "parse_bootstrap",
    "parse_listen",
    "parse_origins",
    "peer_of_author",
    "resident_bytes",
    "share_port",
    "with_bootstraps",
]
