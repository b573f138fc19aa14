"""A fast path between a socket and the streams of its connection that bypasses the library's layers.

For each frame the library makes a dozen coroutine calls, two system calls to read, four locks and texts for a log that
nobody keeps. Here all available bytes are read at once, and a plain data frame goes straight into its stream. Every
other frame, and an incomplete one, takes the library's path with the library's checks and deadlines.

Even empty Noise messages, empty frames, yamux pings and data for streams that do not exist cost computing. A peer that
sends more than FRAMES_PER_S of them is read more slowly.
"""

import struct
from typing import Any

import trio
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.security.noise.io import MAX_PLAINTEXT_LENGTH
from libp2p.stream_muxer.yamux.yamux import HEADER_SIZE, TYPE_DATA, TYPE_WINDOW_UPDATE, YAMUX_HEADER_FORMAT

from sfnode.network import bounds
from sfnode.network.policy import TokenBucket

_HEADER = struct.Struct(YAMUX_HEADER_FORMAT)
_LENGTH_BYTES = 2  # before each Noise message
# Each wait allocates a buffer of this size and cuts it to the received bytes: larger ones fragment the heap more.
_READ_BYTES = 16_384


class DirectSession:
    """Replaces ``read`` and ``write`` of one secured connection. One reader and one writer at a time."""

    def __init__(self, muxed: Any, secured: Any) -> None:
        self._muxed = muxed
        self._noise = secured.conn.noise_state
        self._stream: trio.SocketStream = secured.conn.read_writer.read_write_closer.stream.stream
        self._encrypted = bytearray()
        self._plain = bytearray(secured._drain(None))  # bytes that came with the last message of the negotiation
        self._body_bytes = 0  # left of the frame whose header the library has read
        self._is_body_dropped = False  # by the library, because its stream does not exist
        self._frames = TokenBucket(bounds.FRAMES_BURST, trio.current_time())
        self._unpaid_frames = 0.0  # Noise messages and frames not yet charged to the bucket

    async def read(self, count: int) -> bytes:
        """Return a header, or up to ``count`` bytes of the body after it. ConnectionClosedError, or a Noise error."""
        if self._body_bytes:
            while not self._plain:
                await self._receive()
            body = self._take(min(count, self._body_bytes))
            self._body_bytes -= len(body)
            if self._is_body_dropped:  # no window bounds these; charged as they come, not by the length they announce
                self._unpaid_frames += len(body) / bounds.DROPPED_BYTES_PER_FRAME
            return body
        self._deliver()
        while len(self._plain) < HEADER_SIZE:
            await self._receive()
            self._deliver()
        header = self._take(HEADER_SIZE)
        _, kind, flags, stream_id, length = _HEADER.unpack(header)
        self._body_bytes = length if kind == TYPE_DATA else 0
        self._is_body_dropped = bool(flags) or stream_id not in self._muxed.streams
        self._unpaid_frames += bounds.CONTROL_FRAME_COST
        await self._stay_within_rate()
        return header

    async def _stay_within_rate(self) -> None:
        """Charge the uncharged frames, and wait while the peer is over its rate."""
        rate_per_s = bounds.STRANGER_FRAMES_PER_S if self._muxed.is_stranger else bounds.FRAMES_PER_S
        wait_s = self._frames.take(self._unpaid_frames, rate_per_s, trio.current_time())
        self._unpaid_frames = 0.0
        if wait_s > 0:
            await trio.sleep(wait_s)

    def _deliver(self) -> None:
        """Consume the plain frames at the front: data go into their streams, window updates into send windows.

        Stop at the first other or incomplete frame. The buffers enforce our own windows.
        """
        plain, muxed = self._plain, self._muxed
        while len(plain) >= HEADER_SIZE:
            version, kind, flags, stream_id, length = _HEADER.unpack_from(plain)
            stream, end = muxed.streams.get(stream_id), HEADER_SIZE + length
            if version or flags or stream is None:  # the library handles it, with its checks
                return
            if kind == TYPE_WINDOW_UPDATE:
                stream.send_window += length
                del plain[:HEADER_SIZE]
                self._unpaid_frames += 1
                continue
            if kind != TYPE_DATA or end > len(plain):
                return
            self._unpaid_frames += 1
            muxed.stream_buffers[stream_id].extend(plain[HEADER_SIZE:end])
            del plain[:end]
            stream.recv_window = max(0, stream.recv_window - length)
            if length:
                muxed.stream_events[stream_id].set()

    def _take(self, count: int) -> bytes:
        taken = bytes(self._plain[:count])
        del self._plain[:count]
        return taken

    async def _receive(self) -> None:
        """Wait for bytes, then decrypt all complete Noise messages."""
        await self._stay_within_rate()
        try:
            data = await self._stream.receive_some(_READ_BYTES)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionClosedError(str(error), transport="tcp") from error
        if not data:
            raise ConnectionClosedError("closed by the peer", transport="tcp")
        if len(data) < bounds.SMALL_READ_BYTES:
            self._unpaid_frames += bounds.SMALL_READ_COST
        encrypted = self._encrypted
        encrypted += data
        while len(encrypted) >= _LENGTH_BYTES:
            end = _LENGTH_BYTES + int.from_bytes(encrypted[:_LENGTH_BYTES], "big")
            if len(encrypted) < end:
                return
            self._plain += self._noise.decrypt(bytes(encrypted[_LENGTH_BYTES:end]))
            self._unpaid_frames += 1
            del encrypted[:end]

    async def write(self, data: bytes) -> None:
        """Encrypt and send all of ``data``. ConnectionClosedError."""
        messages = b""
        for start in range(0, len(data), MAX_PLAINTEXT_LENGTH):
            encrypted = self._noise.encrypt(data[start : start + MAX_PLAINTEXT_LENGTH])
            messages += len(encrypted).to_bytes(_LENGTH_BYTES, "big") + encrypted
        try:
            await self._stream.send_all(messages)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionClosedError(str(error), transport="tcp") from error
