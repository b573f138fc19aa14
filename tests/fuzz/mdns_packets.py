"""Target ``mdns``: any packet of the local network means a query, a few ASCII texts, or nothing; what is believed of it
is the sender's own address."""

from __future__ import annotations

from collections.abc import Iterator

from sfnode.network.discovery.mdns import believable
from sfnode.network.discovery.mdns_packets import (
    Announcement,
    Query,
    decode_packet_untrusted,
    encode_announcement,
    encode_query,
)
from sfnode.network.policy.addresses import peer_of_author
from tests.fuzz.catalogue import Target

_SOURCE = "192.168.1.5"
_TEXT = f"/ip4/{_SOURCE}/tcp/4001/p2p/{peer_of_author(bytes(31) + bytes([1]))}"


def check_packet(data: bytes) -> None:
    """As it is, and as the rest of a packet that begins well."""
    for packet in (data, encode_announcement(b"r", (_TEXT,))[:12] + data):
        found = decode_packet_untrusted(packet)
        assert found is None or isinstance(found, Query | Announcement)
        if isinstance(found, Announcement):
            assert 1 <= len(found.addresses) <= 4
            assert all(text.isascii() and len(text) <= 255 for text in found.addresses)
            assert all(address.host == _SOURCE and address.peer for address in believable(found.addresses, _SOURCE))


def packet_seeds() -> Iterator[bytes]:
    """Queries, announcements, and faults in each part."""
    query, good = encode_query(), encode_announcement(b"random", (_TEXT, "/dns4/a/tcp/1"))
    yield query
    yield good
    yield encode_announcement(b"random", (_TEXT,) * 6)
    yield good[12:]
    for packet in (query, good):
        yield packet[:-1]
        for at in (2, 5, 7, 12, 13, 20, 29):
            yield packet[:at] + bytes([packet[at] ^ 0xC3]) + packet[at + 1 :]
    yield query[:12] + b"\xc0\x0c" + query[-4:]
    yield good.replace(b"_p2p", b"_P2P")
    yield b""


TARGETS = {"mdns": Target(check=check_packet, seeds=packet_seeds)}
