"""Door: `Session`. Runs sessions with neighbours after the handshake, and file transfers on streams of their own."""

from sfnode.network.sessions import handshake as handshake
from sfnode.network.sessions.bandwidth import Pace as Pace
from sfnode.network.sessions.channel import Channel as Channel, Traffic as Traffic
from sfnode.network.sessions.file_answers import (
    FileSource as FileSource,
    PacedFile as PacedFile,
    manifest_part as manifest_part,
)
from sfnode.network.sessions.file_download import (
    Download as Download,
    OtherRunError as OtherRunError,
    Wanted as Wanted,
    fetch as fetch,
)
from sfnode.network.sessions.file_server import (
    FILES_PROTOCOL as FILES_PROTOCOL,
    FileServer as FileServer,
    ServedRun as ServedRun,
)
from sfnode.network.sessions.handshake import RefusedError as RefusedError, SilentError as SilentError
from sfnode.network.sessions.neighbour_files import Ask as Ask, NeighbourFiles as NeighbourFiles
from sfnode.network.sessions.open_sessions import OpenSessions as OpenSessions
from sfnode.network.sessions.session import Session as Session
