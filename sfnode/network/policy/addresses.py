"""Peer ids and network addresses: parsing, checking, what an address means to other nodes. Pure: no sockets."""

import ipaddress
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from base58 import b58decode, b58encode

from protocol.errors import OperatorError
from protocol.wire import PeerId

# libp2p: a short public key is its own id: identity multihash (00, length 24) of the protobuf {1: Ed25519, 2: 32 bytes}
_ED25519_ID_PREFIX = bytes.fromhex("002408011220")
_ED25519_ID_BYTES = len(_ED25519_ID_PREFIX) + 32
_ED25519_ID_DIGITS = 52  # the number of base58 digits is constant, because the second byte is not zero
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}(\.[A-Za-z0-9][A-Za-z0-9-]{0,62})*\.?")
_THIS_NETWORK = ipaddress.IPv4Network("0.0.0.0/8")  # some systems treat all of it as loopback
_INSIDE = tuple(  # not routed on the internet: private networks, and carrier-grade NAT
    map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))
)
_KINDS = ("ip4", "ip6", "dns", "dns4", "dns6")


def peer_of_author(author: bytes) -> PeerId:
    """Return the libp2p peer id of an author (32-byte Ed25519 public key): both are the same key."""
    if len(author) != 32:
        raise ValueError(f"an Ed25519 public key has 32 bytes, got {len(author)}")
    return PeerId(b58encode(_ED25519_ID_PREFIX + author).decode("ascii"))


def author_of_peer(peer: str) -> bytes:
    """Return the 32-byte Ed25519 public key in a peer id; ValueError for a malformed id or another kind of key."""
    raw = b""
    if len(peer) == _ED25519_ID_DIGITS and peer.isalnum():  # the decoder drops white space
        with suppress(ValueError):
            raw = b58decode(peer)
    if len(raw) != _ED25519_ID_BYTES or not raw.startswith(_ED25519_ID_PREFIX):
        raise ValueError(f"{peer[:80]!r} is not the peer id of an Ed25519 key (12D3KooW...)")
    return raw[len(_ED25519_ID_PREFIX) :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A TCP address: ``/ip4|ip6|dns|dns4|dns6/<host>/tcp/<port>``, with ``/p2p/<peer>`` if the peer is known."""

    kind: str
    host: str
    port: int
    peer: PeerId | None

    @property
    def transport(self) -> str:
        """Return the address without the peer."""
        return f"/{self.kind}/{self.host}/tcp/{self.port}"

    def __str__(self) -> str:
        return self.transport if self.peer is None else f"{self.transport}/p2p/{self.peer}"

    @property
    def is_wildcard(self) -> bool:
        """Return whether this is 0.0.0.0 or ::, which mean "every interface" and cannot be dialled."""
        return self.kind in ("ip4", "ip6") and ipaddress.ip_address(self.host).is_unspecified

    @property
    def is_loopback(self) -> bool:
        if self.kind in ("ip4", "ip6"):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host.lower().rstrip(".") == "localhost"

    @property
    def is_link_local(self) -> bool:
        """Return whether only one link knows it (169.254.0.0/16, fe80::/10); clouds keep a machine's secrets there."""
        return self.kind in ("ip4", "ip6") and ipaddress.ip_address(self.host).is_link_local

    @property
    def is_inside(self) -> bool:
        """Return whether only this machine or its own network can dial the address; False for a host name."""
        if self.kind not in ("ip4", "ip6"):
            return False
        host = ipaddress.ip_address(self.host)
        return self.is_loopback or self.is_link_local or any(host in network for network in _INSIDE)

    @property
    def is_of_one_machine(self) -> bool:
        """Return whether it names one machine, as host names may not, and multicast and reserved addresses do not."""
        if self.kind == "ip4":
            host = ipaddress.IPv4Address(self.host)
            return not (host.is_multicast or host.is_reserved or host in _THIS_NETWORK)
        return self.kind == "ip6" and not ipaddress.IPv6Address(self.host).is_multicast


def parse_address(text: str) -> Address:
    """Parse one multiaddr; ValueError says what is wrong with it."""
    parts = text.split("/")
    if len(parts) not in (5, 7) or parts[0] or parts[3] != "tcp" or (len(parts) == 7 and parts[5] != "p2p"):
        raise ValueError("expected /ip4/<address>/tcp/<port> (or ip6, dns, dns4, dns6), then optionally /p2p/<peer id>")
    peer = None
    if len(parts) == 7:
        author_of_peer(parts[6])
        peer = PeerId(parts[6])
    kind, host = parts[1], _check_host(parts[1], parts[2])
    if kind == "ip6" and (mapped := ipaddress.IPv6Address(host).ipv4_mapped):
        kind, host = "ip4", str(mapped)
    port = parts[4]
    if not port.isascii() or not port.isdigit() or len(port) > 5 or int(port) > 65_535:
        raise ValueError(f"not a TCP port: {port!r}")
    return Address(kind=kind, host=host, port=int(port), peer=peer)


def _check_host(kind: str, host: str) -> str:
    if kind not in _KINDS:
        raise ValueError(f"unknown kind of address {kind!r}; allowed: {', '.join(_KINDS)}")
    if kind == "ip4":
        return str(ipaddress.IPv4Address(host))
    if kind == "ip6":
        parsed = ipaddress.IPv6Address(host)
        if parsed.scope_id:
            raise ValueError(f"the zone of {host!r} means something on one machine only")
        return str(parsed)
    if len(host) > 253 or _HOST_NAME.fullmatch(host) is None:
        raise ValueError(f"not a host name: {host!r}")
    return host


def parse_bootstrap(text: str) -> Address:
    """Parse the operator's address of a node to dial. OperatorError if peer id, port or a dialable host is missing."""
    with _faults_of("bootstrap", text):
        address = parse_address(text)
        if address.port == 0 or address.is_wildcard:
            raise ValueError("this cannot be dialled; give the host and port at which others reach that node")
        if address.peer is None:
            raise ValueError("the peer id is missing: append /p2p/<peer id>, as `sfnode id show` prints it there")
        return address


def parse_listen(text: str) -> Address:
    """Parse the operator's listening address. OperatorError unless its host is an IP address without a zone.

    0.0.0.0 means every interface; port 0 means any free port.
    """
    with _faults_of("listen", text):
        address = parse_address(text)
        if address.kind not in ("ip4", "ip6"):
            raise ValueError("listen on an IP address: /ip4/0.0.0.0/tcp/<port> or /ip6/::/tcp/<port>")
        if address.kind == "ip6" and address.is_link_local:
            raise ValueError("a link-local address needs a zone, which cannot be given: listen on /ip6/::/tcp/<port>")
        return address


def parse_announce(text: str) -> Address:
    """Parse the operator's public address of this node. OperatorError if others cannot dial it."""
    with _faults_of("announce", text):
        address = parse_address(text)
        if address.port == 0 or address.is_wildcard:
            raise ValueError("others cannot dial this; give a public IP address or host name, and the port")
        return address


@contextmanager
def _faults_of(use: str, text: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise OperatorError(f"{use} address {text!r}: {error}") from error


def parse_untrusted(texts: tuple[str, ...]) -> tuple[Address, ...]:
    """Parse the addresses of a peer's message; skip those of unknown form or without a port."""
    found: list[Address] = []
    for text in texts:
        try:
            address = parse_address(text)
        except ValueError:
            continue
        if address.port:
            found.append(address)
    return tuple(found)


def believable_addresses(named: tuple[Address, ...], *, observed_host: str, is_of_itself: bool) -> tuple[Address, ...]:
    """Return those of a neighbour's addresses that we may dial. We see the neighbour at IP address ``observed_host``.

    The owner of a domain decides where a name in it leads, and systems resolve even numbers ("127.1"): a name could
    lead to our own machine or network. So a neighbour's name for itself, like "every interface", is replaced by the
    address where we see it. Names and "every interface" of other peers are dropped (``is_of_itself`` false).
    """
    observed = _observed(observed_host)
    meant: list[Address] = []
    for address in named:
        is_vague = address.is_wildcard or address.kind not in ("ip4", "ip6")
        if is_vague and is_of_itself:
            meant.append(replace(address, kind=observed.kind, host=observed.host))
        elif not is_vague and address.is_of_one_machine:
            meant.append(address)
    return reachable_addresses(tuple(meant), observed_host=observed_host)


def reachable_addresses(listen: tuple[Address, ...], *, observed_host: str) -> tuple[Address, ...]:
    """Return the addresses that can be dialled across the connection to IP address ``observed_host``, without peer ids.

    "Every interface" becomes ``observed_host``. Loopback is kept only if ``observed_host`` is loopback too, so that
    nobody can make a node dial its own machine. Link-local addresses are kept only on one link. A private address is
    kept only if ``observed_host`` is private too, so that no stranger can make a node dial machines of its own network.
    """
    observed = _observed(observed_host)
    found: list[Address] = []
    for address in listen:
        meant = replace(address, peer=None)
        if address.is_wildcard:
            meant = replace(meant, kind=observed.kind, host=observed.host)
        is_elsewhere = (
            (meant.is_loopback and not observed.is_loopback)
            or (meant.is_link_local and not observed.is_link_local)
            or (meant.is_inside and not observed.is_inside)
        )
        if not is_elsewhere and meant not in found:
            found.append(meant)
    return tuple(found)


def _observed(ip: str) -> Address:
    """Return the address, without a port, of an IP address; without the zone of a link-local one, valid only here."""
    parsed = ipaddress.ip_address(ip.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
        parsed = parsed.ipv4_mapped
    return Address(kind=f"ip{parsed.version}", host=str(parsed), port=0, peer=None)
