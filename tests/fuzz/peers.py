"""Targets ``addresses`` and ``exchange``: what peers say of peers, as text and as lists."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

from protocol.crypto.keys import Signer
from protocol.errors import OperatorError
from protocol.limits import ADDRESSES_PER_PEER_MAX, FRAME_BYTES_MAX
from protocol.wire import PeerAddress, PeerId, Peers, decode_untrusted, encode
from sfnode.network import bounds
from sfnode.network.discovery.peer_exchange import PeerExchange
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy.address_book import AddressBook
from sfnode.network.policy.addresses import (
    author_of_peer,
    parse_address,
    parse_announce,
    parse_bootstrap,
    parse_listen,
    parse_untrusted,
    peer_of_author,
    reachable_addresses,
)
from sfnode.network.policy.node_names import NameBook, is_fit, read_name_untrusted, sign_name
from tests.fuzz.catalogue import Target
from tests.fuzz.choices import Choices

HOSTS = ("192.0.2.1", "127.0.0.1", "2001:db8::1", "::1", "::ffff:192.0.2.1")
PEERS = tuple(peer_of_author(bytes(31) + bytes([number])) for number in range(6))
OWN, NAMED = PEERS[0], PEERS[5]
_ANN = Signer(bytes(32))
_TEXTS = (
    "/ip4/192.0.2.7/tcp/4001",
    "/ip4/0.0.0.0/tcp/4001",
    "/ip4/127.0.0.1/tcp/4001",
    "/ip4/192.0.2.7/tcp/0",
    "/ip6/::/tcp/1",
    "/ip6/2001:db8::7%25eth0/tcp/1",
    "/ip6/fe80::1%eth0/tcp/1",
    "/dns4/localhost./tcp/65535",
    "/dns/a.example/tcp/4001",
    f"/dns6/a.example/tcp/4001/p2p/{PEERS[3]}",
    "/ip6/::ffff:127.0.0.1/tcp/4001",
    "/ip6/::ffff:0.0.0.0/tcp/4001",
    "/ip4/192.0.2/tcp/4001",
    "/ip4/192.0.2.7/udp/4001",
    "nonsense",
)


# --- addresses


def check_addresses(data: bytes) -> None:
    """ValueError (from the operator: OperatorError), or an address that is written as it is read; or a fit name."""
    text = data.decode("utf-8", "replace")
    named = read_name_untrusted(text, _ANN.author, bytes(32))
    assert named is None or (is_fit(named.name) and named.text == text and parse_untrusted((text,)) == ())
    with suppress(ValueError):
        key = author_of_peer(text)
        assert peer_of_author(key) == text
    with suppress(ValueError):
        address = parse_address(text)
        assert parse_address(str(address)) == address
        assert not (address.is_loopback and address.is_wildcard)
    for parse in (parse_bootstrap, parse_listen, parse_announce):
        with suppress(OperatorError):
            parse(text)
    parsed = parse_untrusted((text, text))
    assert len(parsed) in (0, 2) and all(address.port for address in parsed)
    for host in HOSTS:
        for reachable in reachable_addresses(parsed, observed_host=host):
            _check_reachable(str(reachable), host)


def _check_reachable(text: str, observed_host: str) -> None:
    """It can be dialled and shown, and nobody can make us dial our own machine."""
    address = parse_address(text)
    assert address.port > 0 and text.isprintable()
    if address.kind in ("ip4", "ip6"):
        host, observed = _plain_ip(address.host), _plain_ip(observed_host)
        assert not host.is_unspecified and (observed.is_loopback or not host.is_loopback), text


def _plain_ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address that is dialled in the end: ``::ffff:127.0.0.1`` is this machine, too."""
    parsed = ipaddress.ip_address(host)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def address_seeds() -> Iterator[bytes]:
    """Addresses of each form, a peer id, a host name that a careless regular expression refuses only after minutes."""
    name = sign_name(_ANN, bytes(32), "Ann", 5).text
    yield from (
        name.encode(),
        name.replace("Ann", "Eve").encode(),
        name.replace(":5:", ":x:").encode(),
        name[:9].encode(),
    )
    for text in (*_TEXTS, OWN, f"/ip4/1.2.3.4/tcp/1/p2p/{OWN}", f"/dns/{'a' * 24}!/tcp/1"):
        yield text.encode()


# --- exchange


def check_exchange(data: bytes) -> None:
    """Whatever three neighbours tell: the book stays within its bounds, and what we pass on is a valid message."""
    choices = Choices(data)
    exchange, book = _exchange()
    while choices.is_left:
        source, host = choices.pick(PEERS[1:4]), choices.pick(HOSTS)
        is_awaited = not choices.one_in(4)
        told = Peers(peers=tuple(_told(choices) for _ in range(choices.below(9))))
        before = book.rows()
        if is_awaited:
            exchange._awaited[source] += 1
        assert exchange.receive_untrusted(cast("Any", _session(source, host)), told) == is_awaited
        assert is_awaited or book.rows() == before
        assert not exchange.receive_untrusted(cast("Any", _session(source, host)), told)
        _check_book(book)
        _check_answer(exchange, book, choices)


def _exchange() -> tuple[PeerExchange, AddressBook]:
    bootstrap = (parse_bootstrap(f"/ip4/192.0.2.9/tcp/9/p2p/{NAMED}"),)
    book = AddressBook(own_peer=OWN, bootstrap=bootstrap, chance=random.Random(1))
    open_sessions = SimpleNamespace(peers=lambda: frozenset(PEERS[1:3]))
    return PeerExchange(
        config=NetworkConfig(), names=NameBook(bytes(32)), book=book, open_sessions=cast("Any", open_sessions)
    ), book


def _session(peer: PeerId, remote_host: str) -> SimpleNamespace:
    """As much of a session as the exchange looks at."""
    return SimpleNamespace(peer=peer, channel=SimpleNamespace(link=SimpleNamespace(remote_host=remote_host)))


def _told(choices: Choices) -> PeerAddress:
    kind = choices.byte() % 8
    peer = choices.pick(PEERS) if kind < 4 else peer_of_author(bytes(30) + choices.take(2))
    if kind == 7:
        peer = PeerId(choices.take(52).decode("latin-1"))
    texts = tuple(_address(choices) for _ in range(choices.below(ADDRESSES_PER_PEER_MAX + 1)))
    return PeerAddress(peer=peer, addresses=texts)


def _address(choices: Choices) -> str:
    text = choices.pick(_TEXTS)
    return choices.changed(text.encode()).decode("latin-1") if choices.one_in(4) else text


def _check_book(book: AddressBook) -> None:
    rows = book.rows()
    assert len(rows) <= min(bounds.KNOWN_PEERS_MAX, 2 + 3 * bounds.UNVERIFIED_PER_SOURCE_MAX)
    assert any(row.peer == NAMED for row in rows) and all(row.peer != OWN for row in rows)
    assert str(book.addresses(NAMED)[0]) == "/ip4/192.0.2.9/tcp/9", "unverified displaced what the operator said"
    for row in rows:
        author_of_peer(row.peer)
        assert 1 <= len(row.addresses) == len(set(row.addresses)) <= ADDRESSES_PER_PEER_MAX
        for text in row.addresses:
            address = parse_address(text)
            assert address.port > 0 and not address.is_wildcard and address.peer is None


def _check_answer(exchange: PeerExchange, book: AddressBook, choices: Choices) -> None:
    peer, host = choices.pick(PEERS[:5]), choices.pick(HOSTS)
    if choices.one_in(2) and peer != OWN:
        book.succeeded(peer, parse_address("/ip4/192.0.2.8/tcp/8"), unix_ms=5)
    bytes_max = choices.pick((200, 1_000, FRAME_BYTES_MAX))
    told = Peers(peers=exchange.recommend(peer, host, bytes_max=bytes_max))
    payload = encode(told)
    assert len(payload) <= bytes_max and decode_untrusted(payload) == told
    assert all(entry.peer != peer for entry in told.peers)


def exchange_seeds() -> Iterator[bytes]:
    """Lists of all kinds, from all sources."""
    for number in range(24):
        yield bytes((number * 13 + index * (2 * number + 1)) % 256 for index in range(24 + 4 * number))


TARGETS = {
    "addresses": Target(check=check_addresses, seeds=address_seeds),
    "exchange": Target(check=check_exchange, seeds=exchange_seeds),
}
