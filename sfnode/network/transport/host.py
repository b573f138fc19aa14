"""The libp2p host: identity, listening, dialling. It provides links and does not know messages.

Noise, Yamux and TCP are named explicitly: the library's default list accepts plaintext, where ids can be forged.
"""

import errno
import ipaddress
import logging
import math
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import psutil
import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_new_noise_key_pair
from libp2p.custom_types import TProtocol
from libp2p.exceptions import BaseLibp2pError
from libp2p.identity.identify_push.identify_push import ID_PUSH
from libp2p.io.trio import TrioTCPStream
from libp2p.network.config import ConnectionConfig
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.peer.id import ID
from libp2p.protocol_muxer.exceptions import MultiselectClientError
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE, Transport as NoiseTransport
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX, Yamux
from libp2p.transport.tcp.tcp import TCP
from multiaddr import Multiaddr

from protocol.errors import OperatorError
from protocol.wire import PeerId
from sfnode.event_log import log
from sfnode.network import bounds
from sfnode.network.open_files import connections_max
from sfnode.network.policy import Address, Origins, author_of_peer, ip_groups, parse_address
from sfnode.network.transport import libp2p_patches as patches, ping, reachability as reach
from sfnode.network.transport.link import Link
from sfnode.network.transport.stream_guard import Doorkeeper, StreamGuard
from sfnode.unexpected_errors import Boundary, Slips

PROTOCOL = TProtocol("/sfnode/1")

# Usual errors when a stream cannot be opened: the peer has gone, is slow, or lacks the protocol.
_NOT_OPENED = (MultiselectClientError, BaseLibp2pError, trio.TooSlowError, OSError, trio.BrokenResourceError)

# Networks of containers and virtual machines on this machine: nobody outside can dial their addresses.
_INTERNAL_INTERFACES = ("docker", "br-", "veth", "virbr", "cni", "lxc", "podman", "vmnet", "bridge")

_LISTEN_ADVICE = {
    errno.EADDRINUSE: "another program, perhaps another node, uses this port; stop it or choose another port",
    errno.EADDRNOTAVAIL: "this machine has no such address; /ip4/0.0.0.0 means every interface",
    errno.EACCES: "ports below 1024 need root; choose a higher one",
}

SessionHandler = Callable[[Link], Awaitable[None]]

_OTHER_PEER = "another node answers there: its peer id is not the one in the address"


class DialError(Exception):
    """This address could not be reached now; the text says why, for the operator."""

    @property
    def is_other_peer(self) -> bool:
        """Return whether another node answers at this address than the one in it."""
        return str(self) == _OTHER_PEER


class Host:
    """Runs one libp2p host. ``on_inbound`` gets the link of every session that a peer opens, and closes it."""

    def __init__(
        self,
        *,
        identity_seed: bytes,
        on_inbound: SessionHandler,
        origins: Origins = ip_groups.DEFAULT_ORIGINS,
        slips: Slips | None = None,
    ) -> None:
        if len(identity_seed) != 32:
            raise ValueError(f"an Ed25519 seed has 32 bytes, got {len(identity_seed)}")
        patches.patch_library()
        self._host = _build_host(identity_seed, connections_max())
        self._swarm: Any = self._host.get_network()
        self._on_inbound = on_inbound
        self.slips = slips or Slips()
        self.on_garbage: Callable[[PeerId, str], None] = lambda _peer, _reason: None
        self.guard = StreamGuard(self._host._swarm_stream_handler)
        self._doorkeeper = Doorkeeper(origins, connections_max())
        self._listeners = patches.patch_swarm(self._swarm, self.guard, self._doorkeeper)
        patches.identify_once(self._host)
        self._host.remove_stream_handler(ID_PUSH)  # strangers may not fill our address store
        self._host.set_stream_handler(PROTOCOL, self._accept)
        self.serve_beside(TProtocol(reach.PROTOCOL), reach.Reachability(origins).answer)
        self.serve_beside(TProtocol(ping.PROTOCOL), ping.answer_pings)
        self.peer = PeerId(str(self._host.get_id()))
        self.addresses: tuple[Address, ...] = ()  # listening addresses with the real ports; set by ``running``

    @asynccontextmanager
    async def running(self, listen: tuple[Address, ...]) -> AsyncIterator[None]:
        """Listen and serve until the block ends. OperatorError: port in use; trio.TooSlowError: no start in START_S."""
        await check_can_listen(listen)
        wanted = [Multiaddr(address.transport) for address in listen]
        is_over, has_ended = trio.Event(), trio.Event()

        async def serve(task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
            try:
                async with self._host.run(listen_addrs=wanted):  # in a task: its start and its end can hang
                    task_status.started()
                    await is_over.wait()
            finally:
                has_ended.set()

        async with AsyncExitStack() as at_end:
            # tcp.py:314 serves in a system task: if the start fails, it would hold the port until the process ends.
            at_end.push_async_callback(self._in_stop_time, self.stop_listening)
            nursery = await at_end.enter_async_context(trio.open_nursery())
            at_end.callback(nursery.cancel_scope.cancel)
            with trio.fail_after(bounds.START_S):
                await nursery.start(serve)
            at_end.push_async_callback(self._in_stop_time, has_ended.wait)
            at_end.callback(is_over.set)
            at_end.push_async_callback(self._in_stop_time, partial(patches.drop_all_connections, self._swarm))
            self.addresses = tuple(bound for address in listen for bound in self._bound(address))
            yield

    @staticmethod
    async def _in_stop_time(end: Callable[[], Awaitable[None]]) -> None:
        """Let something end even if the node is being cancelled, within STOP_S."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + bounds.STOP_S):
            await end()

    def _bound(self, address: Address) -> list[Address]:
        """Return the addresses that the library listens on; OperatorError if none, because it hides failures."""
        listener = self._swarm.listeners.get(str(Multiaddr(address.transport)))
        found = [parse_address(str(bound)) for bound in listener.get_addrs()] if listener is not None else []
        if not found:
            raise OperatorError(f"cannot listen on {address.transport}: another program has taken the port just now")
        return found

    async def stop_listening(self) -> None:
        """Accept no further connections; keep the present ones."""
        async with trio.open_nursery() as nursery:
            for listener in self._listeners:
                nursery.start_soon(listener.close)

    async def dial(self, address: Address, *, has_others: bool = False) -> Link:
        """Open a session stream to the peer at one address within DIAL_S; DialError gives the reason of a failure.

        ``has_others``: others are tried next, so an IP address without answer is left after CONNECT_S.
        """
        assert address.peer is not None, "only addresses with a peer id are dialled"
        if address.peer == self.peer:
            raise DialError("this is the node itself")
        try:
            with trio.fail_after(bounds.DIAL_S):
                stream = await _connect(address, has_others)
                return await self._upgrade(stream, address.peer)
        except trio.TooSlowError as error:
            raise DialError(f"no answer within {bounds.DIAL_S:.0f} s") from error
        except Exception as error:
            raise DialError(_describe(error)) from error

    async def _upgrade(self, stream: trio.SocketStream, peer: PeerId) -> Link:
        """Negotiate Noise, Yamux and our protocol; close the socket if this fails."""
        connection = None
        try:
            raw = RawConnection(TrioTCPStream(stream), True)
            connection = await self._swarm.upgrade_outbound_raw_conn(raw, ID.from_base58(peer))
            connection.muxed_conn.has_session, connection.muxed_conn.is_stranger = True, False
            return await self._open_stream(connection.muxed_conn, PROTOCOL)
        except BaseException:
            if connection is not None:
                await patches.drop_connection(connection.muxed_conn)
            stream.socket.close()
            raise

    async def _open_stream(self, muxed: Any, protocol: TProtocol) -> Link:
        """Open a stream below the library's NetStream, which its connection would keep until the connection ends."""
        opened = await muxed.open_stream()
        link = Link(muxed, opened, is_outbound=True)
        try:
            communicator = MultiselectCommunicator(opened)
            await self._host.multiselect_client.select_one_of([protocol], communicator, int(bounds.DIAL_S))
            return link
        except BaseException:
            await link.reset()
            raise

    async def ask_reach(self, link: Link, port: int) -> reach.ReachAnswer | None:
        """Ask the peer of a link how it sees us and, unless ``port`` is 0, whether it can connect to us there.

        Return None if the peer does not know the protocol or does not answer.
        """
        stream = await self.open_beside(link, TProtocol(reach.PROTOCOL))
        if stream is None:
            return None
        try:
            return await reach.ask(stream, port)
        finally:
            await stream.reset()

    async def open_beside(self, link: Link, protocol: TProtocol) -> Link | None:
        """Open another stream to the peer of a link, on the same connection; return None if that fails.

        No exception of the library leaves this method. An answer that no honest peer gives is reported to `on_garbage`.
        """
        with Boundary(partial(self._not_opened, link.peer)), trio.fail_after(bounds.DIAL_S):
            return await self._open_stream(link.muxed, protocol)
        return None

    def _not_opened(self, peer: PeerId, error: Exception) -> None:
        """Report a peer whose answer was garbage; ignore one that has gone, is slow or lacks the protocol."""
        if isinstance(error, _NOT_OPENED):
            return
        log(logging.WARNING, "peer_rejected", is_failure=True, peer=peer)
        self.on_garbage(peer, f"garbage instead of a stream: {error!r}")

    def serve_beside(self, protocol: TProtocol, on_request: SessionHandler) -> None:
        """Call ``on_request`` for every stream of this protocol that a peer opens in addition to its session."""

        async def answer(stream: Any) -> None:
            with self.slips.contained(f"a stream of {protocol}", endings=()):
                await on_request(Link(stream.muxed_conn, stream.muxed_stream, is_outbound=False))
            await stream.close()

        self._host.set_stream_handler(protocol, answer)

    async def _accept(self, stream: Any) -> None:
        """Accept a session stream: one for each connection, and only from a peer with an Ed25519 key."""
        muxed = stream.muxed_conn
        is_author = False
        with suppress(ValueError):
            author_of_peer(str(muxed.peer_id))
            is_author = True
        if muxed.has_session or not is_author:
            await stream.reset()
            return
        muxed.has_session = True
        with self.slips.contained("an inbound session", endings=()):
            await self._on_inbound(Link(muxed, stream.muxed_stream, is_outbound=False))


def _build_host(identity_seed: bytes, inbound_max: int) -> Any:
    key_pair = create_new_key_pair(identity_seed)
    noise = NoiseTransport(key_pair, noise_privkey=create_new_noise_key_pair().private_key)
    outbound = bounds.OUTBOUND_MAX + bounds.DIALS_AT_ONCE_MAX
    connections = ConnectionConfig(
        max_connections=inbound_max + outbound,
        min_connections=outbound,  # inbound ones do not take these, because the doorkeeper counts them
        low_watermark=outbound,
        high_watermark=inbound_max + outbound,
        max_connections_per_peer=bounds.CONNECTIONS_PER_PEER_MAX,
    )
    return new_host(
        key_pair=key_pair,
        sec_opt={NOISE: noise},
        muxer_opt={TProtocol(YAMUX): Yamux},
        transports=[TCP()],
        connection_config=connections,
    )


async def check_can_listen(listen: tuple[Address, ...]) -> None:
    """Raise OperatorError with the system's reason if an address cannot be listened on; the library hides it."""
    everywhere = {(address.kind, address.port) for address in listen if address.is_wildcard and address.port}
    for address in listen:
        if not address.is_wildcard and (address.kind, address.port) in everywhere:
            raise OperatorError(f"cannot listen on {address.transport} and on every interface, which has it: give one")
        family = socket.AF_INET if address.kind == "ip4" else socket.AF_INET6
        try:
            with trio.socket.socket(family, socket.SOCK_STREAM) as probe:
                patches.prepare_listener(probe)
                await probe.bind((address.host, address.port))
                probe.listen(1)
        except OSError as error:
            advice = _LISTEN_ADVICE.get(error.errno or 0, "choose another address")
            raise OperatorError(f"cannot listen on {address.transport}: {error.strerror}; {advice}") from error


def dialable(address: Address) -> tuple[Address, ...]:
    """Return the addresses to dial for a listening one: for "every interface" those of a few, and then loopback.

    The interface of the default route comes first. The others matter where there is none, as in an isolated classroom,
    or where it leads into a tunnel.
    """
    if not address.is_wildcard:
        return (address,)
    family, elsewhere, loopback = {
        "ip4": (socket.AF_INET, "192.0.2.1", "127.0.0.1"),
        "ip6": (socket.AF_INET6, "2001:db8::1", "::1"),
    }[address.kind]
    hosts = []
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((elsewhere, 9))  # sends nothing; the system picks the interface for the way out
        hosts.append(str(probe.getsockname()[0]))
    states = psutil.net_if_stats()
    for name, found in psutil.net_if_addrs().items():
        own = [ipaddress.ip_address(each.address) for each in found if each.family == family]
        useful = [str(host) for host in own if not (host.is_link_local or host.is_loopback)]
        is_up = name in states and states[name].isup and not name.startswith(_INTERNAL_INTERFACES)
        if is_up and not set(useful) & set(hosts):
            hosts += useful[:1]
    return tuple(replace(address, host=host) for host in dict.fromkeys((*hosts[: bounds.OWN_HOSTS_MAX], loopback)))


async def _connect(address: Address, has_others: bool = False) -> trio.SocketStream:
    """Open a TCP connection. ``dns`` tries both families in parallel; ``dns4`` and ``dns6`` mean one of them."""
    host, port = address.host, address.port
    if address.kind != "dns":
        family = socket.AF_INET6 if address.kind in ("ip6", "dns6") else socket.AF_INET
        host = (await trio.socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM))[0][4][0]
    is_quick = has_others and address.kind in ("ip4", "ip6")  # a name may have to be looked up
    with trio.move_on_after(bounds.CONNECT_S if is_quick else math.inf):
        return await trio.open_tcp_stream(host, port)
    raise TimeoutError(errno.ETIMEDOUT, "no answer")


def _describe(error: BaseException) -> str:
    """Describe the innermost cause in words: the library wraps it up to five times."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno is not None:
            text = os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)  # below 0: name lookup
            return text[:1].lower() + text[1:]
    texts = [str(cause) or type(cause).__name__ for cause in _causes(error)]
    whole = " ".join(texts).lower()
    if "mismatch" in whole or "does not correspond" in whole:
        return _OTHER_PEER
    if "protocol" in whole and "not supported" in whole:
        return "that is not an sfnode node: it does not speak /sfnode/1"
    return f"handshake failed ({texts[0][:200]}); perhaps that is no sfnode node"


def _causes(error: BaseException) -> list[BaseException]:
    """Return the error and its causes, innermost first."""
    inner: list[BaseException] = []
    if isinstance(error, BaseExceptionGroup):
        inner = [cause for part in error.exceptions for cause in _causes(part)]
    elif error.__cause__ is not None:
        inner = _causes(error.__cause__)
    return [*inner, error]
