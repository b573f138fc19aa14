"""Door: `Session`. Runs sessions with neighbours after the handshake, and file transfers on streams of their own."""

from sfnode.network.sessions.channel import Channel, Traffic
from sfnode.network.sessions.file_answers import FileSource, PacedFile, manifest_part
from sfnode.network.sessions.file_download import (
    Download,
    OtherRunError,
    Wanted,
    fetch,
)
from sfnode.network.sessions.file_server import FILES_PROTOCOL, FileServer, ServedRun
from sfnode.network.sessions.handshake import (
    DISCOURAGED,
    DUPLICATE,
    FULL,
    OBSERVER_RUN_ID,
    OTHER_VERSION,
    RefusedError,
    SilentError,
    await_hello,
    exchange_hello,
    mismatch,
    own_hello,
    refuse,
)
from sfnode.network.sessions.neighbour_files import Ask, NeighbourFiles
from sfnode.network.sessions.open_sessions import OpenSessions, info
from sfnode.network.sessions.pace import Pace
from sfnode.network.sessions.session import Session

__all__ = [
    "Ask",
    "NeighbourFiles",
    "Pace",
    "manifest_part",
    "OtherRunError",
    "OTHER_VERSION",
    "fetch",
    "Channel",
    "DISCOURAGED",
    "DUPLICATE",
    "Download",
    "FILES_PROTOCOL",
    "FULL",
    "FileServer",
    "FileSource",
    "PacedFile",
    "OBSERVER_RUN_ID",
    "OpenSessions",
    "RefusedError",
    "ServedRun",
    "Session",
    "SilentError",
    "Traffic",
    "Wanted",
    "await_hello",
    "exchange_hello",
    "info",
    "mismatch",
    "own_hello",
    "refuse",
]
