"""Door: `Session`. Runs sessions with neighbours after the handshake, and file transfers on streams of their own."""

from sfnode.network.sessions import file_server, handshake
from sfnode.network.sessions.bandwidth_limit import Pace, Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.file_download import Download, OtherRunError, Wanted, fetch
from sfnode.network.sessions.file_server import FILES_PROTOCOL, FileServer, FileSource, PacedFile, ServedRun
from sfnode.network.sessions.handshake import RefusedError, SilentError
from sfnode.network.sessions.neighbour_files import NeighbourFiles
from sfnode.network.sessions.open_sessions import OpenSessions
from sfnode.network.sessions.session import Session
