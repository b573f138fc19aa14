"""Patches of py-libp2p 0.8.1, each with the fault that it cures. The patched yamux is in `bounded_yamux`.

`direct_session`, `stream_guard`, `ping` and `host` hold further work-arounds. docs/libp2p.md lists the faults, and the
test of each cure. Line numbers refer to the 0.8.1 wheel. ``check_library`` refuses any other version, so that no fault
returns unnoticed. ``host.py`` avoids some faulty parts altogether: the dialler (never below 250 ms, no deadline, first
TCP address only, 60 s negative cache, stale addresses), the default security list (plaintext), mplex, pubsub.
"""

import importlib.metadata
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from libp2p.exceptions import ParseError
from libp2p.identity.identify.identify import ID as IDENTIFY, identify_handler_for
from libp2p.io.utils import read_exactly
from libp2p.network.connection import swarm_connection
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.protocol_muxer import multiselect_communicator
from libp2p.stream_muxer.yamux import yamux
from libp2p.transport.tcp import tcp
from libp2p.utils.varint import decode_uvarint_from_stream

from protocol.errors import OperatorError
from sfnode.event_log import log
from sfnode.network import bounds
from sfnode.network.transport.bounded_yamux import BoundedYamux, WindowedStream
from sfnode.network.transport.stream_guard import Caller, Doorkeeper, StreamGuard
from sfnode.unexpected_errors import Boundary

LIBRARY_VERSION = "0.8.1"


def check_library() -> None:
    """Raise OperatorError unless libp2p has exactly the version of the patches."""
    version = importlib.metadata.version("libp2p")
    if version != LIBRARY_VERSION:
        raise OperatorError(
            f"libp2p {version} is installed, sfnode needs exactly {LIBRARY_VERSION} because it works round faults of "
            f"that version; run: pip install libp2p=={LIBRARY_VERSION}"
        )


def patch_library() -> None:
    """Apply the patches that concern the whole process. Idempotent."""
    check_library()
    _silence()
    # yamux.py accepts announced frames of 16 MiB at any window: no honest peer can send more than a window.
    yamux.MAX_WINDOW_SIZE = bounds.STREAM_WINDOW_BYTES
    yamux.YamuxStream = WindowedStream
    tcp._set_reuse_flags = prepare_listener
    # multiselect_communicator.py:49 accepts any announced length of a line, in every negotiation.
    multiselect_communicator.read_delim = _read_line


def prepare_listener(endpoint: trio.socket.SocketType) -> None:
    """Let a socket that is to listen take a port in TIME_WAIT, and leave IPv4 to a listener of its own."""
    # tcp.py:41 sets SO_REUSEPORT for hole punching: two daemons would share one port and split its dials.
    endpoint.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_REUSEADDR, 1)
    # tcp.py:82 leaves this out: /ip6/:: would take the port of /ip4/0.0.0.0, too, which other libp2p hosts keep apart.
    if endpoint.family == trio.socket.AF_INET6:
        endpoint.setsockopt(trio.socket.IPPROTO_IPV6, trio.socket.IPV6_V6ONLY, 1)


def patch_swarm(swarm: Any, guard: StreamGuard, doorkeeper: Doorkeeper) -> list[Any]:
    """Apply the patches that concern one host; ``guard`` wraps the stream handler of all its protocols.

    Return a list that gets each listener which the swarm makes, because swarm.py:1937 forgets those that fail.
    """
    swarm.set_stream_handler(guard.handle)
    swarm.upgrader.muxer_multistream.new_conn = _bounded_muxer(swarm.upgrader.muxer_multistream)
    swarm._do_handle_inbound_connection = _inbound_handler(swarm, doorkeeper)
    swarm._inbound_limiter = trio.CapacityLimiter(math.inf)  # first come first served; the doorkeeper makes room
    # The resource manager leaks slots and is rate-limited per process; the bounds in bounds.py take its place.
    swarm.set_resource_manager(None)
    # Notifees run identify in trio *system* tasks (basic_host.py), where an error ends the process. We have our hello.
    swarm.notifees.clear()
    # The auto-connector ignores its settings, dials up to (low + high) / 2, and never forgets a peer.
    swarm.auto_connector = _NoAutoConnector()
    swarm._schedule_prune = lambda: None
    listeners: list[Any] = []
    make = swarm.transport_manager.add_listen_addr

    def make_and_remember(*arguments: Any) -> Any:
        listener = make(*arguments)
        listeners.extend([] if listener is None else [listener])
        return listener

    swarm.transport_manager.add_listen_addr = make_and_remember
    return listeners


# --- logging ------------------------------------------------------------------------------------------------------


def _silence() -> None:
    """Silence libp2p's loggers: they report ordinary events (a peer went away) as errors with tracebacks on stderr."""
    # It calls the *root* logger on every inbound connection (swarm_connection.py:365).
    swarm_connection.logging = logging.getLogger("libp2p")
    names = [name for name in logging.root.manager.loggerDict if name == "libp2p" or name.startswith("libp2p.")]
    for name in ["libp2p", *names]:
        logger = logging.getLogger(name)
        logger.setLevel(logging.CRITICAL)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


class _NoAutoConnector:
    """Replaces the auto-connector: never dials, remembers nothing."""

    async def start(self, *_nursery: trio.Nursery) -> None:
        await trio.lowlevel.checkpoint()

    run_background_task = stop = start

    def record_disconnect(self, _peer: object) -> None:
        """Ignore the peer."""


# --- inbound connections ------------------------------------------------------------------------------------------


def _inbound_handler(swarm: Any, doorkeeper: Doorkeeper) -> Callable[[Any, Any, Any], Awaitable[None]]:
    """Return a handler of inbound connections that keeps a slot only until the connection ends.

    swarm.py:2060 keeps it until the *host* ends: a host accepts 250 connections in its lifetime. This handler also
    closes connections without a session, a peer's surplus ones, and those that the doorkeeper does not admit.
    """

    def failed(_error: Exception) -> None:
        log(logging.DEBUG, "inbound_upgrade_failed", is_failure=True)

    async def handle(stream: Any, address: Any, _failure_event: Any) -> None:
        raw = RawConnection(stream, False)
        with Boundary(failed):
            socket = stream.stream.socket
            with doorkeeper.place(str(socket.getpeername()[0]), socket) as caller:
                await serve(raw, address, caller)
                return
        with Boundary(failed):
            await raw.close()

    async def serve(raw: RawConnection, address: Any, caller: Caller) -> None:
        await doorkeeper.admit(caller)
        caller.muxed = muxed = await swarm.upgrade_inbound_raw_conn(raw, address)
        connections = swarm.connections.get(muxed.peer_id, ())
        if len(connections) <= bounds.CONNECTIONS_PER_PEER_MAX:
            with trio.move_on_after(bounds.FIRST_SESSION_S):
                await muxed.event_closed.wait()
        if not muxed.has_session and not muxed.is_closed:
            await drop_connection(muxed)
        await muxed.event_closed.wait()

    return handle


# --- negotiation --------------------------------------------------------------------------------------------------


class LineTooLongError(ValueError):
    """A peer announced a longer line in its negotiation than any honest peer sends."""


async def _read_line(reader: Any) -> bytes:
    """Read a line of a negotiation and strip its end. LineTooLongError before reading too much, or ParseError."""
    size = await decode_uvarint_from_stream(reader)
    if size > bounds.NEGOTIATION_LINE_BYTES_MAX:
        raise LineTooLongError(f"a line of {size} bytes in a negotiation, at most {bounds.NEGOTIATION_LINE_BYTES_MAX}")
    line: bytes = await read_exactly(reader, size)
    if not line.endswith(b"\n"):
        raise ParseError("a line of a negotiation without its end")
    return line[:-1]


# --- identify -----------------------------------------------------------------------------------------------------


def identify_once(host: Any) -> None:
    """Answer identify only once on each connection: the library answers every question, 1 ms each."""
    identify = identify_handler_for(host, use_varint_format=True)

    async def handle(stream: Any) -> None:
        muxed = stream.muxed_conn
        if muxed.is_identified:
            await stream.reset()
            return
        muxed.is_identified = True
        await identify(stream)

    host.set_stream_handler(IDENTIFY, handle)


# --- yamux ------------------------------------------------------------------------------------------------------------


def _bounded_muxer(muxer: Any) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return a ``new_conn`` that makes a BoundedYamux: muxer_multistream.py:143 ignores the given yamux class."""

    async def new_conn(secured: Any, peer_id: Any) -> Any:
        protocol, _ = await muxer._selector.select(secured, secured.is_initiator, muxer.negotiate_timeout)
        connection = BoundedYamux(secured, peer_id, is_initiator=secured.is_initiator)
        return muxer._annotate_connection(connection, secured, protocol)

    return new_conn


# --- closing ------------------------------------------------------------------------------------------------------


async def drop_connection(muxed: Any) -> None:
    """Close one connection at once by closing its socket, and wait up to CLOSE_S for its task to end.

    The library's close sleeps for 0.2 s, and waits without limit for the lock of a blocked write. Closing the socket
    makes the connection's own task end and clean up. To have its last bytes read, a caller first ends its stream and
    waits for the peer's end of stream.
    """
    muxed.abort()
    with trio.CancelScope(shield=True, deadline=trio.current_time() + bounds.CLOSE_S):
        await muxed.event_closed.wait()


async def drop_all_connections(swarm: Any) -> None:
    """Close all connections in parallel; the library's ``close`` takes 0.2 s for each, one after another."""
    async with trio.open_nursery() as nursery:
        for connection in swarm.get_connections():
            nursery.start_soon(drop_connection, connection.muxed_conn)
