"""Every work-around for py-libp2p 0.8.1, each with the fault it cures. Only this file touches its private names.

docs/libp2p.md lists the faults, and the test of each cure. Line numbers are of the 0.8.1 wheel. ``check_library``
refuses any other version: no fault may come back unnoticed.
Some faults are cured by not using the faulty part at all (``host.py``): the dialler (never below 250 ms, no deadline,
first TCP address only, 60 s negative cache, stale addresses), the default security list (plaintext), mplex, pubsub.
"""

from __future__ import annotations

import importlib.metadata
import logging
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio
from libp2p.identity.identify.identify import ID as IDENTIFY
from libp2p.identity.identify.identify import identify_handler_for
from libp2p.network.connection import swarm_connection
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.swarm import Swarm
from libp2p.security.secure_session import SecureSession
from libp2p.stream_muxer import muxer_multistream
from libp2p.stream_muxer.exceptions import MuxedStreamEOF, MuxedStreamError, MuxedStreamReset
from libp2p.stream_muxer.yamux import yamux
from libp2p.transport.tcp import tcp

from protocol.errors import OperatorError
from sfnode.event_log import log
from sfnode.network import bounds
from sfnode.network.transport.direct_session import DirectSession
from sfnode.network.transport.doorkeeper import Doorkeeper
from sfnode.network.transport.stream_guard import StreamGuard
from sfnode.slips import Boundary

LIBRARY_VERSION: Final = "0.8.1"
_PATCHED: Final[tuple[tuple[Any, tuple[str, ...]], ...]] = (
    (Swarm, ("_do_handle_inbound_connection", "_schedule_prune", "set_resource_manager")),
    (Swarm, ("set_stream_handler", "upgrade_inbound_raw_conn", "upgrade_outbound_raw_conn")),
    (yamux, ("MAX_WINDOW_SIZE", "YamuxStream", "Yamux", "YAMUX_HEADER_FORMAT", "TYPE_DATA")),
    (yamux.Yamux, ("start", "_write_frame", "_finalize_stream")),
    (SecureSession, ("read", "write", "_drain")),
    (yamux.YamuxStream, ("write", "send_window_update", "_auto_tune_and_send_window_update")),
    (muxer_multistream.MuxerMultistream, ("new_conn", "_annotate_connection")),
    (swarm_connection, ("logging", "SwarmConn")),
    (tcp, ("_set_reuse_flags",)),
)


def check_library() -> None:
    """OperatorError unless libp2p is exactly the version the patches are made for and has all that they touch."""
    version = importlib.metadata.version("libp2p")
    if version != LIBRARY_VERSION:
        raise OperatorError(
            f"libp2p {version} is installed, sfnode needs exactly {LIBRARY_VERSION} because it works round faults of "
            f"that version; run: pip install libp2p=={LIBRARY_VERSION}"
        )
    missing = [f"{owner.__name__}.{name}" for owner, names in _PATCHED for name in names if not hasattr(owner, name)]
    if missing:
        raise OperatorError(
            f"libp2p {version} lacks {', '.join(missing)}; run: pip install --force-reinstall libp2p=={version}"
        )


def patch_library() -> None:
    """The patches that concern the whole process. Idempotent."""
    check_library()
    _silence()
    # yamux.py accepts announced frames of 16 MiB, whatever the window: no honest peer can send more than a window.
    yamux.MAX_WINDOW_SIZE = bounds.STREAM_WINDOW_BYTES
    yamux.YamuxStream = WindowedStream
    # tcp.py:41 sets SO_REUSEPORT for hole punching: two daemons would share one port and each get half of the dials.
    tcp._set_reuse_flags = _set_reuse_address


def patch_swarm(swarm: Any, guard: StreamGuard, doorkeeper: Doorkeeper) -> None:
    """The patches that concern one host; ``guard`` wraps the stream handler of all its protocols."""
    swarm.set_stream_handler(guard.handle)
    swarm.upgrader.muxer_multistream.new_conn = _bounded_muxer(swarm.upgrader.muxer_multistream)
    swarm._do_handle_inbound_connection = _inbound_handler(swarm, doorkeeper)
    # The resource manager leaks slots and is rate-limited per process; the bounds in bounds.py take its place.
    swarm.set_resource_manager(None)
    # Notifees run identify in trio *system* tasks (basic_host.py), where an error ends the process. We have our hello.
    swarm.notifees.clear()
    # The auto-connector dials by itself towards (low + high) / 2 whatever is set, and remembers every peer for ever.
    swarm.auto_connector = _NoAutoConnector()
    swarm._schedule_prune = _nothing


# --- logging ------------------------------------------------------------------------------------------------------


class _SilentLogging:
    """Inside swarm_connection.py, which calls the *root* logger on every inbound connection (line 365)."""

    def debug(self, *_arguments: object, **_named: object) -> None:
        """Drop the line."""

    info = warning = error = debug


def _silence() -> None:
    """libp2p logs ordinary events (a peer went away) as errors with tracebacks on stderr; we log our own, once."""
    swarm_connection.logging = _SilentLogging()
    names = [name for name in logging.root.manager.loggerDict if name == "libp2p" or name.startswith("libp2p.")]
    for name in ["libp2p", *names]:
        logger = logging.getLogger(name)
        logger.setLevel(logging.CRITICAL)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


def _nothing() -> None:
    """In place of a method that must not do anything."""


class _NoAutoConnector:
    """In place of the auto-connector: never dials, remembers nothing."""

    async def start(self) -> None:
        await trio.lowlevel.checkpoint()

    stop = start

    async def run_background_task(self, _nursery: trio.Nursery) -> None:
        await trio.lowlevel.checkpoint()

    def record_disconnect(self, _peer: object) -> None:
        """Forget it at once."""


def _set_reuse_address(sock: Any) -> None:
    sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_REUSEADDR, 1)


# --- inbound connections ------------------------------------------------------------------------------------------


def _inbound_handler(swarm: Any, doorkeeper: Doorkeeper) -> Callable[[Any, Any, Any], Awaitable[None]]:
    """swarm.py:2060 holds an inbound slot until the *host* ends: 250 connections in its lifetime are all it takes.

    This one holds it until the connection ends. It also closes connections without a session, a peer's surplus ones,
    and those that the doorkeeper does not admit.
    """

    def failed(_error: Exception) -> None:
        log(logging.DEBUG, "inbound_upgrade_failed", is_failure=True)

    async def handle(stream: Any, address: Any, _failure_event: Any) -> None:
        raw, muxed = RawConnection(stream, False), None
        with Boundary(failed):
            host = str(stream.stream.socket.getpeername()[0])
            others = (connection.muxed_conn for connection in swarm.get_connections())
            async with doorkeeper.admitted(host, [other.remote_host for other in others if other.is_stranger]):
                muxed = await swarm.upgrade_inbound_raw_conn(raw, address)
        if muxed is None:
            with Boundary(failed):
                await raw.close()
            return
        connections = swarm.connections.get(muxed.peer_id, ())
        if len(connections) <= bounds.CONNECTIONS_PER_PEER_MAX:
            with trio.move_on_after(bounds.FIRST_SESSION_S):
                await muxed.event_closed.wait()
        if not muxed.has_session and not muxed.is_closed:
            await drop_connection(muxed)
        await muxed.event_closed.wait()

    return handle


# --- identify -----------------------------------------------------------------------------------------------------


def identify_once(host: Any) -> None:
    """The library tells a peer who we are as often as it asks: 1 ms each. Here, once on each connection."""
    tell = identify_handler_for(host, use_varint_format=True)

    async def handle(stream: Any) -> None:
        muxed = stream.muxed_conn
        if muxed.is_identified:
            await stream.reset()
            return
        muxed.is_identified = True
        await tell(stream)

    host.set_stream_handler(IDENTIFY, handle)


# --- yamux --------------------------------------------------------------------------------------------------------


class WindowExceededError(trio.TooSlowError):
    """The peer sent more than its window allows. A TooSlowError because yamux closes the connection on that type."""


class _BoundedBuffer(bytearray):
    """Unread bytes of one stream, bounded together with those of the connection's other streams."""

    owner: BoundedYamux

    def extend(self, data: Any) -> None:
        """Append, or WindowExceededError when the connection would hold more than it may."""
        if self.owner.buffered_bytes() + len(data) > bounds.CONNECTION_BUFFER_BYTES_MAX:
            raise WindowExceededError("more unread bytes than the receive windows allow")
        super().extend(data)


class _BoundedBuffers(dict[int, bytearray]):
    """yamux.py puts a bare bytearray here for each new stream; it becomes a bounded one."""

    def __init__(self, owner: BoundedYamux) -> None:
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
        self.has_session = False  # set by the host once one of our sessions runs on this connection
        self.is_stranger = True  # until the peer has said hello, or we have dialled it
        self.is_identified = False  # has been told who we are
        self._socket: trio.socket.SocketType = secured_conn.conn.read_writer.read_write_closer.stream.stream.socket
        remote, local = self._socket.getpeername(), self._socket.getsockname()
        self.remote_host, self.remote_port = str(remote[0]), int(remote[1])  # the library: IPv4 only (io/trio.py:99)
        self.local_host, self.local_port = str(local[0]), int(local[1])
        direct = DirectSession(self, secured_conn)
        secured_conn.read, secured_conn.write = direct.read, direct.write

    def buffered_bytes(self) -> int:
        """Unread bytes of all streams."""
        return sum(map(len, self.stream_buffers.values()))

    def abort(self) -> None:
        """Close the socket now, without a word. Wakes blocked reads and writes, which otherwise hang without limit."""
        self._socket.close()

    async def start(self) -> None:
        """Run the connection. An error here would end the host (trio_manager.py:385); it ends the connection."""
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

    async def _write_frame(self, data: bytes) -> None:
        """Write one frame. A cancelled or failed write leaves half a Noise message behind: the connection is over.

        Unless it was cancelled before its turn: then nothing is written, and nothing lost.
        """
        async with self._write_lock:
            await trio.lowlevel.checkpoint_if_cancelled()
            is_written = False
            try:
                await self.secured_conn.write(data)
                is_written = True
            finally:
                if not is_written:
                    self.abort()


class WindowedStream(yamux.YamuxStream):  # type: ignore[misc]
    """A yamux stream with a constant window: credit is given back in halves of it; a writer waits as long as it must.

    yamux.py:430 grows the window to 16 MiB and answers every read with a window update (a third of the cost of a
    small frame); yamux.py:275 breaks the stream when the reader pauses for 5 s, and polls every 10 ms until then.
    """

    def __init__(self, stream_id: int, conn: Any, is_initiator: bool) -> None:
        self._window_opened = trio.Event()
        super().__init__(stream_id, conn, is_initiator)

    @property
    def send_window(self) -> int:
        """Bytes that we may still send."""
        return self._send_window

    @send_window.setter
    def send_window(self, value: int) -> None:
        self._send_window = value
        if value > 0:
            self._window_opened.set()

    async def write(self, data: bytes) -> None:
        """Send all of ``data``. No deadline of its own: the caller sets one and cuts the connection when it passes."""
        sent = 0
        while sent < len(data):
            if self.closed or self.send_closed:
                raise MuxedStreamError("stream is closed for sending")
            size = min(self.send_window, bounds.YAMUX_CHUNK_BYTES_MAX, len(data) - sent)
            if size <= 0:
                await self._wait_for_window()
                continue
            self.send_window -= size
            header = struct.pack(yamux.YAMUX_HEADER_FORMAT, 0, yamux.TYPE_DATA, 0, self.stream_id, size)
            await self.conn._write_frame(header + data[sent : sent + size])
            sent += size

    async def read(self, n: int | None = -1) -> bytes:
        """Up to ``n`` bytes as soon as there are any. Takes no lock: the library's three cost 40 us per frame."""
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

    async def _wait_for_window(self) -> None:
        self._window_opened = trio.Event()
        with trio.move_on_after(1.0):  # the library sets ``closed`` without waking writers
            await self._window_opened.wait()

    async def _auto_tune_and_send_window_update(self, *, bytes_read: int = 0) -> None:
        buffered = len(self.conn.stream_buffers.get(self.stream_id, b""))
        credit = bounds.STREAM_WINDOW_BYTES - self.recv_window - buffered
        if credit >= bounds.STREAM_WINDOW_BYTES // 2:
            self.recv_window += credit
            await self.send_window_update(credit)


def _bounded_muxer(muxer: Any) -> Callable[[Any, Any], Awaitable[Any]]:
    """muxer_multistream.py:143 ignores the class it was given for yamux and always makes its own."""

    async def new_conn(secured: Any, peer_id: Any) -> Any:
        protocol, _ = await muxer._selector.select(secured, secured.is_initiator, muxer.negotiate_timeout)
        connection = BoundedYamux(secured, peer_id, is_initiator=secured.is_initiator)
        return muxer._annotate_connection(connection, secured, protocol)

    return new_conn


# --- closing ------------------------------------------------------------------------------------------------------


async def drop_connection(muxed: Any) -> None:
    """Close one connection at once and for certain.

    The library's close sleeps for 0.2 s, and waits without limit for the lock of a blocked write. Closing the socket
    makes the connection's own task end and clean up. Whoever wants its last bytes read ends its stream before, and
    waits for the other side's end of stream.
    """
    muxed.abort()
    with trio.CancelScope(shield=True, deadline=trio.current_time() + bounds.CLOSE_S):
        await muxed.event_closed.wait()


async def drop_all_connections(swarm: Any) -> None:
    """Close all connections side by side; the library's own ``close`` takes 0.2 s for each, one after another."""
    async with trio.open_nursery() as nursery:
        for connection in swarm.get_connections():
            nursery.start_soon(drop_connection, connection.muxed_conn)
