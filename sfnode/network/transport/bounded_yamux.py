"""Yamux with bounds: `libp2p_patches` installs it in place of py-libp2p 0.8.1's connection and stream.

Line numbers refer to the 0.8.1 wheel; docs/libp2p.md lists the faults that are cured here.
"""

import logging
import struct
from typing import Any

import trio
from libp2p.stream_muxer.exceptions import MuxedStreamEOF, MuxedStreamError, MuxedStreamReset
from libp2p.stream_muxer.yamux import yamux

from sfnode.event_log import log
from sfnode.network import bounds
from sfnode.network.transport.direct_session import DirectSession
from sfnode.unexpected_errors import Boundary


class WindowExceededError(trio.TooSlowError):
    """The peer sent more than its window allows. It is a TooSlowError because yamux closes the connection on these."""


class _BoundedBuffer(bytearray):
    """Holds the unread bytes of one stream; all streams of a connection share one bound."""

    owner: "BoundedYamux"

    def extend(self, data: Any) -> None:
        """Append ``data``; WindowExceededError if the connection would exceed its bound."""
        if self.owner.buffered_bytes() + len(data) > bounds.CONNECTION_BUFFER_BYTES_MAX:
            raise WindowExceededError("more unread bytes than the receive windows allow")
        super().extend(data)


class _BoundedBuffers(dict[int, bytearray]):
    """Replaces the bare bytearray that yamux.py stores for each new stream by a bounded one."""

    def __init__(self, owner: "BoundedYamux") -> None:
        super().__init__()
        self._owner = owner

    def __setitem__(self, stream_id: int, value: bytearray) -> None:
        buffer = _BoundedBuffer(value)
        buffer.owner = self._owner
        super().__setitem__(stream_id, buffer)


class BoundedYamux(yamux.Yamux):  # type: ignore[misc]  # libp2p has no types that mypy can read
    """Yamux that enforces its receive windows, survives its own errors and can be cut at once.

    yamux.py:1546 only logs when a peer ignores its window: 120 MB were buffered on a window of 0.25 MB.
    """

    def __init__(self, secured_conn: Any, peer_id: Any, **options: Any) -> None:
        super().__init__(secured_conn, peer_id, **options)
        self.stream_buffers = _BoundedBuffers(self)
        self.has_session = False  # set by the host once the connection carries one of our sessions
        self.is_stranger = True  # until the peer's hello, or until we have dialled it
        self.is_identified = False  # identify was answered on this connection
        self._socket: trio.socket.SocketType = secured_conn.conn.read_writer.read_write_closer.stream.stream.socket
        remote = self._socket.getpeername()
        self.remote_host, self.remote_port = str(remote[0]), int(remote[1])  # the library: IPv4 only (io/trio.py:99)
        direct = DirectSession(self, secured_conn)
        secured_conn.read, secured_conn.write = direct.read, direct.write

    def buffered_bytes(self) -> int:
        return sum(map(len, self.stream_buffers.values()))

    def abort(self) -> None:
        """Close the socket now, without a bye. This wakes blocked reads and writes, which have no time limit."""
        self._socket.close()

    async def start(self) -> None:
        """Run the connection. An error ends only the connection; unpatched it ends the host (trio_manager.py:385)."""
        is_over = False
        with Boundary(self._failed):
            await super().start()
            is_over = True
        if not is_over:
            self.abort()
            with Boundary(self._failed):
                await self._cleanup_on_error()

    def _failed(self, _error: Exception) -> None:
        log(logging.DEBUG, "connection_failed", is_failure=True, peer=str(self.peer_id))

    async def open_stream(self) -> Any:
        """Open a stream. yamux.py:911 leaks a stream and its slot if the opening is cancelled; there are 256 slots."""
        await self.stream_backlog_semaphore.acquire()
        stream = yamux.YamuxStream(self.next_stream_id, self, True)
        self.next_stream_id += 2
        stream._owns_backlog_slot = True
        try:
            async with self.streams_lock:
                self.streams[stream.stream_id] = stream
                self.stream_buffers[stream.stream_id] = bytearray()
                self.stream_events[stream.stream_id] = trio.Event()
            header = (0, yamux.TYPE_WINDOW_UPDATE, yamux.FLAG_SYN, stream.stream_id, 0)
            await self._write_frame(struct.pack(yamux.YAMUX_HEADER_FORMAT, *header))
            return stream
        except BaseException:
            await self.forget(stream)
            raise

    async def forget(self, stream: Any) -> None:
        """Free a stream's resources, unread bytes included, and wake its readers; shielded."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + bounds.CLOSE_S):
            async with self.streams_lock:
                self.stream_buffers.get(stream.stream_id, bytearray()).clear()
                self.stream_events.get(stream.stream_id, trio.Event()).set()
                self._finalize_stream_locked(stream, fully_closed=True)

    async def _write_frame(self, data: bytes) -> None:
        """Write one frame. A cancelled or failed write leaves half a Noise message behind and ends the connection.

        A write that is cancelled before its turn writes nothing and does no harm.
        """
        async with self._write_lock:
            await trio.lowlevel.checkpoint_if_cancelled()
            try:
                await self.secured_conn.write(data)
            except BaseException:
                self.abort()
                raise


class WindowedStream(yamux.YamuxStream):  # type: ignore[misc]
    """A yamux stream with a constant window. It returns credit in halves of the window; a writer waits without limit.

    yamux.py:430 grows the window to 16 MiB and answers every read with a window update (a third of the cost of a
    small frame). yamux.py:275 breaks the stream if the reader pauses for 5 s, and polls every 10 ms until then.
    """

    def __init__(self, stream_id: int, conn: Any, is_initiator: bool) -> None:
        self._window_opened = trio.Event()
        super().__init__(stream_id, conn, is_initiator)

    @property
    def send_window(self) -> int:
        return self._send_window

    @send_window.setter
    def send_window(self, value: int) -> None:
        self._send_window = value
        if value > 0:
            self._window_opened.set()

    async def write(self, data: bytes) -> None:
        """Send all of ``data``, without a deadline: the caller sets one and cuts the connection when it passes."""
        sent = 0
        while sent < len(data):
            if self.closed or self.send_closed:
                raise MuxedStreamError("stream is closed for sending")
            size = min(self.send_window, bounds.YAMUX_CHUNK_BYTES_MAX, len(data) - sent)
            if size <= 0:
                self._window_opened = trio.Event()
                with trio.move_on_after(1.0):  # the library sets ``closed`` without waking writers
                    await self._window_opened.wait()
                continue
            self.send_window -= size
            header = struct.pack(yamux.YAMUX_HEADER_FORMAT, 0, yamux.TYPE_DATA, 0, self.stream_id, size)
            await self.conn._write_frame(header + data[sent : sent + size])
            sent += size

    async def read(self, n: int | None = -1) -> bytes:
        """Return up to ``n`` bytes as soon as there are any. No lock: the library's three cost 40 us per frame."""
        buffers, events = self.conn.stream_buffers, self.conn.stream_events
        while not (buffer := buffers.get(self.stream_id)):
            if self.reset_received:
                raise MuxedStreamReset("stream was reset")
            if buffer is None or self.recv_closed or self.closed:
                raise MuxedStreamEOF("stream is closed for reading")
            await events[self.stream_id].wait()
            if self.stream_id in events:
                events[self.stream_id] = trio.Event()
        size = len(buffer) if n is None or n < 0 else n
        data = bytes(buffer[:size])
        del buffer[:size]
        if self.closed:
            await self.conn._finalize_stream(self, fully_closed=True)
        await self._auto_tune_and_send_window_update(bytes_read=len(data))
        return data

    async def reset(self) -> None:
        """Reset the stream and free its resources. yamux.py:618 leaks its unread bytes, and its slot when cancelled."""
        try:
            await super().reset()
        finally:
            await self.conn.forget(self)

    async def _auto_tune_and_send_window_update(self, *, bytes_read: int = 0) -> None:
        # The peer's window and the unread bytes together must not exceed the constant window; the rest may be granted.
        buffered = len(self.conn.stream_buffers.get(self.stream_id, b""))
        credit = bounds.STREAM_WINDOW_BYTES - self.recv_window - buffered
        if credit >= bounds.STREAM_WINDOW_BYTES // 2:
            self.recv_window += credit
            await self.send_window_update(credit)
