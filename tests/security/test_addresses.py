"""What a neighbour says of addresses leads to no machine of ours: names, other spellings, special addresses."""

from __future__ import annotations

import random

import pytest

from protocol.wire import PeerAddress, PeerId
from sfnode.network.discovery.peer_exchange import PeerExchange
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy.address_book import AddressBook
from sfnode.network.policy.addresses import (
    believable_addresses,
    parse_address,
    parse_bootstrap,
    parse_untrusted,
    peer_of_author,
)
from sfnode.network.policy.node_names import NameBook
from sfnode.network.sessions.open_sessions import OpenSessions

OWN, TELLER, THIRD = (peer_of_author(bytes([number]) * 32) for number in (1, 2, 3))
SEEN_AT = "203.0.113.5"


def learnt(
    about: PeerId, *addresses: str, observed_host: str = SEEN_AT, config: NetworkConfig | None = None
) -> tuple[str, ...]:
    """What a node remembers of a peer after TELLER, seen at that IP address, has told of it."""
    config = config or NetworkConfig()
    book = AddressBook(own_peer=OWN, bootstrap=config.bootstrap, chance=random.Random(1))
    exchange = PeerExchange(config=config, names=NameBook(bytes(32)), book=book, open_sessions=OpenSessions(OWN))
    exchange.learn((PeerAddress(peer=about, addresses=addresses),), source=TELLER, observed_host=observed_host)
    return tuple(map(str, book.addresses(about)))


@pytest.mark.parametrize("kind", ["dns", "dns4", "dns6"])
def test_exchange__host_name_of_somebody_else__is_not_believed(kind: str) -> None:
    """A fault once: the owner of a domain can let a name in it stand for 127.0.0.1, and a node that was told of an
    invented peer at that name dialled itself, or a machine in its own network."""
    assert learnt(THIRD, f"/{kind}/evil.example/tcp/22") == ()


@pytest.mark.parametrize(("observed_host", "kind"), [(SEEN_AT, "ip4"), ("2001:db8::5", "ip6"), ("127.0.0.1", "ip4")])
def test_exchange__own_host_name_of_the_teller__means_the_address_where_we_see_it(
    observed_host: str, kind: str
) -> None:
    """So a node at home that announces a name of its own is still found, and nobody is led elsewhere by a name."""
    assert learnt(TELLER, "/dns4/home.example/tcp/4001", observed_host=observed_host) == (
        f"/{kind}/{observed_host}/tcp/4001",
    )


def test_exchange__host_name_from_the_operator__is_kept_and_not_doubled() -> None:
    """Containers find each other by name: what the operator gives with --bootstrap is dialled as given."""
    config = NetworkConfig(bootstrap=(parse_bootstrap(f"/dns4/bootstrap/tcp/4001/p2p/{TELLER}"),))
    assert learnt(TELLER, "/dns4/bootstrap/tcp/4001", config=config) == ("/dns4/bootstrap/tcp/4001",)


NOWHERE = [
    "/ip4/127.0.0.1/tcp/22",
    "/ip4/127.255.0.9/tcp/22",
    "/ip6/::1/tcp/22",
    "/ip6/0:0:0:0:0:0:0:1/tcp/22",
    "/ip6/::ffff:127.0.0.1/tcp/22",
    "/ip6/::ffff:7f00:1/tcp/22",
    "/ip4/0.0.0.0/tcp/22",
    "/ip4/0.1.2.3/tcp/22",
    "/ip6/::/tcp/22",
    "/ip6/::ffff:0.0.0.0/tcp/22",
    "/ip4/169.254.169.254/tcp/80",  # where clouds keep a machine's secrets
    "/ip6/::ffff:169.254.169.254/tcp/80",
    "/ip6/fe80::1/tcp/22",
    "/ip4/224.0.0.1/tcp/22",
    "/ip4/255.255.255.255/tcp/22",
    "/ip6/ff02::1/tcp/22",
    "/dns4/localhost/tcp/22",
    "/dns/localhost./tcp/22",
    "/dns4/2130706433/tcp/22",  # a system takes this, and the next ones, for 127.0.0.1
    "/dns4/0x7f000001/tcp/22",
    "/dns4/127.1/tcp/22",
    "/dns4/0177.0.0.01/tcp/22",
]


@pytest.mark.parametrize("inside", ["127.0.0.1", "169.254.7.7", "::1", "fe80::7"])
def test_exchange__this_machine_or_link_from_a_private_address__is_not_believed(inside: str) -> None:
    address = f"/ip{6 if ':' in inside else 4}/{inside}/tcp/22"
    assert learnt(THIRD, address, observed_host="192.168.1.9") == ()


@pytest.mark.parametrize("address", NOWHERE)
def test_exchange__address_that_means_another_machine_to_each__is_not_believed(address: str) -> None:
    """A fault once: loopback was known by its usual spellings only, link-local and others not at all."""
    assert learnt(THIRD, address) == ()


@pytest.mark.parametrize(
    ("address", "observed_host"),
    [
        ("/ip4/127.0.0.1/tcp/4001", "127.0.0.1"),
        ("/ip6/::1/tcp/4001", "::1"),
        ("/ip4/169.254.7.7/tcp/4001", "169.254.1.1"),
        ("/ip6/fe80::7/tcp/4001", "fe80::1%eth0"),
        ("/ip4/192.168.1.7/tcp/4001", "192.168.1.1"),
        ("/ip4/203.0.113.9/tcp/4001", SEEN_AT),
        ("/ip6/2001:db8::9/tcp/4001", SEEN_AT),
    ],
)
def test_exchange__address_in_the_same_reach_as_the_teller__is_believed(address: str, observed_host: str) -> None:
    """Two nodes on one machine, or on a cable without a router, still find each other."""
    assert learnt(THIRD, address, observed_host=observed_host) == (address,)


@pytest.mark.parametrize(
    "inside", ["10.0.0.1", "172.31.255.1", "192.168.1.1", "100.64.0.1", "::ffff:10.0.0.1", "fd00::1"]
)
@pytest.mark.parametrize("about", [TELLER, THIRD], ids=["itself", "a third"])
def test_exchange__private_address_from_a_stranger__is_not_believed(inside: str, about: PeerId) -> None:
    """A fault once: any peer could make a node open connections to the machines of its own network."""
    address = f"/ip{6 if ':' in inside else 4}/{inside}/tcp/22"
    assert learnt(about, address) == learnt(about, address, observed_host="2001:db8::5") == ()
    assert len(learnt(about, address, observed_host="192.168.1.9")) == 1


def test_exchange__private_address_that_the_operator_or_the_local_network_gave__is_kept() -> None:
    config = NetworkConfig(bootstrap=(parse_bootstrap(f"/ip4/192.168.1.7/tcp/4001/p2p/{THIRD}"),))
    assert learnt(THIRD, "/ip4/192.168.1.8/tcp/4001", config=config) == ("/ip4/192.168.1.7/tcp/4001",)
    book = AddressBook(own_peer=OWN, bootstrap=(), chance=random.Random(1))
    nearby = parse_bootstrap(f"/ip4/192.168.1.8/tcp/4001/p2p/{THIRD}")
    assert PeerExchange(
        config=NetworkConfig(), names=NameBook(bytes(32)), book=book, open_sessions=OpenSessions(OWN)
    ).found_nearby(nearby)
    assert book.addresses(THIRD) == parse_untrusted(("/ip4/192.168.1.8/tcp/4001",))


def test_exchange__own_address_under_another_peer_id__is_not_believed() -> None:
    """A neighbour that invents peers at our own address made us dial ourselves."""
    listen, announce = map(parse_address, ("/ip4/192.168.1.5/tcp/4001", "/ip4/198.51.100.1/tcp/4001"))
    config = NetworkConfig(listen=(listen,), announce=(announce,))
    told = ("/ip4/192.168.1.5/tcp/4001", "/ip6/::ffff:198.51.100.1/tcp/4001", "/ip4/198.51.100.1/tcp/4002")
    assert learnt(THIRD, *told, config=config) == ("/ip4/198.51.100.1/tcp/4002",)


def test_believable_addresses__every_interface__means_the_teller_only() -> None:
    told = parse_untrusted(("/ip4/0.0.0.0/tcp/4001", "/ip6/::/tcp/4001", "/dns4/home.example/tcp/4001"))
    itself = parse_untrusted((f"/ip4/{SEEN_AT}/tcp/4001",))
    assert believable_addresses(told, observed_host=SEEN_AT, is_of_itself=True) == itself
    assert believable_addresses(told, observed_host=SEEN_AT, is_of_itself=False) == ()
