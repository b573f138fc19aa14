"""One session's bytes: a libp2p stream together with the connection that carries it and nothing else."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import trio
from libp2p.exceptions import BaseLibp2pError
from libp2p.stream_muxer.exceptions import MuxedStreamEOF

from protocol.wire import PeerId
from sfnode.network import bounds
from sfnode.network.transport.libp2p_patches import drop_connection

# What the library raises when a stream or its connection is gone. Anything else is a bug and shows itself.
_GONE: Final = (BaseLibp2pError, OSError, trio.BrokenResourceError, trio.ClosedResourceError)


class LinkBrokenError(Exception):
    """The connection is gone, or its socket was closed. Not an error of the node: connections end."""


class Link:
    """Reads and writes for exactly one reader task and one writer task. After any error only ``aclose`` is useful.

    Goes past the library's NetStream to the yamux stream below it: its states and locks cost a third of a small frame.
    """

    def __init__(self, muxed: Any, stream: Any, *, is_outbound: bool) -> None:
        self._muxed = muxed
        self._stream = stream
        self.peer = PeerId(str(muxed.peer_id))
        self.is_outbound = is_outbound
        self.remote_host: str = muxed.remote_host
        self.remote_port: int = muxed.remote_port
        self.local: tuple[str, int] = muxed.local_host, muxed.local_port  # our own end of the connection

    async def receive_some(self, bytes_max: int) -> bytes:
        """At least one byte, b"" at the end of the stream; LinkBrokenError."""
        try:
            return bytes(await self._stream.read(bytes_max))
        except MuxedStreamEOF:
            return b""
        except _GONE as error:
            raise LinkBrokenError("the connection was lost") from error

    async def receive_exactly(self, count: int) -> bytes:
        """That many bytes; fewer when the stream ends before. LinkBrokenError."""
        data = b""
        while len(data) < count and (more := await self.receive_some(count - len(data))):
            data += more
        return data

    async def send_all(self, data: bytes) -> None:
        """Send all bytes; LinkBrokenError. Waits without limit for a reader that pauses: set a deadline around it."""
        try:
            await self._stream.write(data)
        except _GONE as error:
            raise LinkBrokenError("the connection was lost while writing") from error

    async def send_eof(self) -> None:
        """Tell the other side that nothing more comes; reading goes on."""
        try:
            await self._stream.close()
        except _GONE as error:
            raise LinkBrokenError("the connection was lost while closing") from error

    async def reset(self) -> None:
        """Give up this stream only; the connection stays. Shielded: a peer that is not told goes on sending."""
        with suppress(*_GONE), trio.CancelScope(shield=True, deadline=trio.current_time() + bounds.WRITE_S):
            await self._stream.reset()

    def introduced(self) -> None:
        """The peer has said hello: its connection is no stranger's any more."""
        self._muxed.is_stranger = False

    def abort(self) -> None:
        """Cut the connection now."""
        self._muxed.abort()

    async def aclose(self) -> None:
        """Close the connection at once and for certain; shielded."""
        await drop_connection(self._muxed)
