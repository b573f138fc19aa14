"""Discovery of peers on the local network: asks, answers and reports addresses. One UDP socket, one task each way.

Anybody on the network can send such packets, so their addresses are only hints. Only an address equal to the packet's
own source counts, so that nobody elsewhere can make us dial a third machine.
"""

import ipaddress
import logging
import random
import secrets
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import trio

from protocol.wire import PeerId
from sfnode.event_log import log
from sfnode.network import bounds
from sfnode.network.discovery import mdns_packets
from sfnode.network.policy import Address, parse_untrusted

GROUP = "224.0.0.251"
PORT = 5353
Found = Callable[[Address], object]


class LocalDiscovery:
    """Discovers peers of the run on the local network. Start ``run`` in a nursery."""

    def __init__(self, peer: PeerId, run_id: bytes, listening: Callable[[], tuple[Address, ...]], found: Found) -> None:
        """``listening`` returns the node's listening addresses; ``found`` is called with addresses with a peer id."""
        self._peer = peer
        self._run = mdns_packets.run_tag(run_id)
        self._listening = listening
        self._found = found
        self._label = secrets.token_hex(16).encode("ascii")
        self._chance = random.Random()
        self._answer_from_s = 0.0
        self._socket: socket.socket

    async def run(self) -> None:
        """Ask and answer until cancelled. Where the socket cannot be opened, the node works without it for a while."""
        level = logging.WARNING
        while True:
            try:
                self._socket = _open_socket()
                break
            except OSError as error:
                log(level, "mdns_unavailable", reason=error.strerror)
            level = logging.DEBUG
            await trio.sleep(bounds.MDNS_QUERY_MAX_S)
        with self._socket:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._ask)
                nursery.start_soon(self._listen)

    async def _ask(self) -> None:
        """Ask and announce on every interface, with growing pauses; join interfaces that have come up."""
        wait_s = bounds.MDNS_QUERY_START_S
        while True:
            for index in self._interfaces():
                with suppress(OSError):  # joined before, or the interface has no multicast
                    self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, _on_interface(index))
                self._send(index, mdns_packets.encode_query())
                self._announce(index)
            await trio.sleep(self._chance.uniform(0.5, 1.5) * wait_s)
            wait_s = min(2 * wait_s, bounds.MDNS_QUERY_MAX_S)

    async def _listen(self) -> None:
        receiving = trio.socket.from_stdlib_socket(self._socket)
        while True:
            with suppress(OSError):  # an interface has gone
                packet, source = await receiving.recvfrom(bounds.MDNS_PACKET_BYTES_MAX + 1)
                self._handle(packet, str(source[0]))
            await trio.sleep(bounds.MDNS_PACKET_S)  # the kernel drops a flood of packets, so it costs us little

    def _handle(self, packet: bytes, source: str) -> None:
        if not is_local(source):
            return
        match mdns_packets.decode_packet_untrusted(packet):
            case mdns_packets.Query():
                now_s = trio.current_time()
                if now_s >= self._answer_from_s:  # everybody on the network hears each answer
                    self._answer_from_s = now_s + bounds.MDNS_ANSWER_INTERVAL_S
                    for index in self._interfaces():
                        self._announce(index)
            # Older releases name no run.
            case mdns_packets.Announcement(addresses=texts, run=run) if run in ("", self._run):
                for address in believable(texts, source):
                    if address.peer != self._peer:
                        self._found(address)

    def _announce(self, index: int) -> None:
        """Announce on one interface the addresses at which we can be dialled over it."""
        host = _own_host(index)
        if host is None or not is_local(host):
            return
        own = tuple(
            str(replace(address, host=host, peer=self._peer))
            for address in self._listening()
            if address.kind == "ip4" and (address.is_wildcard or address.host == host)
        )
        if own := own[: bounds.MDNS_ADDRESSES_MAX]:
            self._send(index, mdns_packets.encode_announcement(self._label, own, self._run))

    def _interfaces(self) -> list[int]:
        """Return all interfaces but loopback: nodes on one machine hear each other over the others."""
        with suppress(OSError):
            return [index for index, name in socket.if_nameindex() if not name.startswith("lo")]
        return []

    def _send(self, index: int, packet: bytes) -> None:
        with suppress(OSError):  # an interface without IPv4 or without multicast, or just gone
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, _on_interface(index))
            self._socket.sendto(packet, (GROUP, PORT))


def is_local(host: str) -> bool:
    """Return whether an address is private, link-local or loopback, so that no router carries it further."""
    with suppress(ValueError):
        parsed = ipaddress.ip_address(host)
        return parsed.is_private or parsed.is_link_local
    return False


def believable(texts: tuple[str, ...], source: str) -> list[Address]:
    """Return the addresses of a packet that we may dial: they equal its ``source`` and name a peer."""
    found = parse_untrusted(texts)
    return [address for address in found if address.kind == "ip4" and address.host == source and address.peer]


def _open_socket() -> socket.socket:
    """Return a UDP socket on the port that all mDNS programs of a machine share."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)  # RFC 6762, 11; the group is never routed
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)  # two nodes of one machine
        opened.bind(("", PORT))
        opened.setblocking(False)
    except BaseException:
        opened.close()
        raise
    return opened


def _on_interface(index: int) -> bytes:
    """Pack struct ip_mreqn: group, any address, interface."""
    return struct.pack("4s4si", socket.inet_aton(GROUP), bytes(4), index)


def _own_host(index: int) -> str | None:
    """Return this machine's IPv4 address on an interface, or None. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, _on_interface(index))
        probe.connect((GROUP, PORT))
        return str(probe.getsockname()[0])
    return None
