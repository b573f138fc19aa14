"""Downloads of files from neighbours, each on a separate stream next to the session."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from protocol.errors import Reject
from protocol.wire import PeerId
from sfnode.network.policy import Fault
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.file_download import Download
from sfnode.network.sessions.file_server import FILES_PROTOCOL
from sfnode.network.sessions.handshake import RefusedError
from sfnode.network.sessions.open_sessions import OpenSessions
from sfnode.network.transport import Host, Link, LinkBrokenError
from sfnode.unexpected_errors import Slips

Ask = Callable[[Download], Awaitable[bytes]]  # RefusedError: the stream can serve no more


class NeighbourFiles:
    """Downloads files from neighbours, and penalises those that send what no honest node sends."""

    def __init__(
        self, host: Host, open_sessions: OpenSessions, open_channel: Callable[[Link], Channel], slips: Slips
    ) -> None:
        self._slips = slips
        self._host = host
        self._open_sessions = open_sessions
        self._open_channel = open_channel

    def peers(self) -> frozenset[PeerId]:
        """Return the neighbours that can be asked now."""
        return self._open_sessions.peers()

    def gave_false_bytes(self, peer: PeerId, name: str) -> None:
        """Penalise a peer whose bytes of a file are provably wrong."""
        self._open_sessions.penalise(peer, Fault.GARBAGE, f"gave bytes that are not of the {name}")

    @asynccontextmanager
    async def asking(self, peer: PeerId) -> AsyncIterator[Ask]:
        """Open a stream to a neighbour for one download after another. RefusedError if there is none."""
        session = self._open_sessions.get(peer)
        link = None if session is None else await self._host.open_beside(session.channel.link, FILES_PROTOCOL)
        if link is None:
            raise RefusedError("it has no stream for files")
        channel = self._open_channel(link)
        channel.trust()

        async def ask(download: Download) -> bytes:
            """Download a document. Raise only RefusedError, so that a peer's stream ends nothing but itself."""
            with self._slips.contained("a download", endings=(LinkBrokenError, RefusedError, Reject)):
                try:
                    return await download.run(channel)
                except LinkBrokenError as error:
                    raise RefusedError(str(error)) from None
                except Reject as error:
                    self._open_sessions.penalise(peer, Fault.GARBAGE, str(error))
                    raise RefusedError(str(error)) from None
            raise RefusedError("this node met a fault of its own on that stream")

        try:
            yield ask
        finally:
            with self._slips.contained("the end of a download", endings=()):
                await link.reset()
