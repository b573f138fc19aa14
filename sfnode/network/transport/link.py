"""Bytes between two nodes: a libp2p stream together with its connection."""

from contextlib import suppress
from typing import Any

import trio
from libp2p.exceptions import BaseLibp2pError
from libp2p.stream_muxer.exceptions import MuxedStreamEOF

from protocol.wire import PeerId
from sfnode.network import bounds
from sfnode.network.transport.libp2p_patches import drop_connection

# The library raises these when a stream or its connection is gone. Other exceptions are bugs and are not caught.
_GONE = (BaseLibp2pError, OSError, trio.BrokenResourceError, trio.ClosedResourceError)


class LinkBrokenError(Exception):
    """The connection is gone, or its socket was closed. This is normal, not an error of the node."""


class Link:
    """Reads and writes one stream, for one reader task and one writer task. After any error only ``aclose`` is useful.

    It bypasses the library's NetStream: its states and locks cost a third of a small frame.
    """

    def __init__(self, muxed: Any, stream: Any, *, is_outbound: bool) -> None:
        self.muxed = muxed
        self._stream = stream
        self.peer = PeerId(str(muxed.peer_id))
        self.is_outbound = is_outbound
        self.remote_host: str = muxed.remote_host
        self.remote_port: int = muxed.remote_port

    async def receive_some(self, bytes_max: int) -> bytes:
        """Return at least one byte, or b"" at the end of the stream; LinkBrokenError."""
        try:
            return bytes(await self._stream.read(bytes_max))
        except MuxedStreamEOF:
            return b""
        except _GONE as error:
            raise LinkBrokenError("the connection was lost") from error

    async def receive_exactly(self, count: int) -> bytes:
        """Return ``count`` bytes, or fewer if the stream ends before. LinkBrokenError."""
        data = b""
        while len(data) < count and (more := await self.receive_some(count - len(data))):
            data += more
        return data

    async def send_all(self, data: bytes) -> None:
        """Send all bytes; LinkBrokenError. A pausing reader blocks it without limit: set a deadline around it."""
        try:
            await self._stream.write(data)
        except _GONE as error:
            raise LinkBrokenError("the connection was lost while writing") from error

    async def send_eof(self) -> None:
        """End our direction of the stream; reading goes on. LinkBrokenError."""
        try:
            await self._stream.close()
        except _GONE as error:
            raise LinkBrokenError("the connection was lost while closing") from error

    async def reset(self) -> None:
        """Reset this stream and keep the connection. Shielded, because a peer that gets no reset goes on sending."""
        with suppress(*_GONE), trio.CancelScope(shield=True, deadline=trio.current_time() + bounds.WRITE_S):
            await self._stream.reset()

    def introduced(self) -> None:
        """Stop treating the connection as a stranger's, after the peer's hello."""
        self.muxed.is_stranger = False

    def abort(self) -> None:
        """Cut the connection now, without waiting."""
        self.muxed.abort()

    async def aclose(self) -> None:
        """Close the connection at once; shielded."""
        await drop_connection(self.muxed)
