"""The parts of the network that need no sockets: addresses, frames, queue, address book."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.peer.id import ID
from trio.testing import wait_all_tasks_blocked

from protocol.errors import OperatorError, Reject, RejectReason
from protocol.framing import FrameParser, frame
from protocol.limits import ADDRESSES_PER_PEER_MAX, FRAME_BYTES_MAX
from protocol.wire import PeerId, Peers, encode
from sfnode.network import bounds
from sfnode.network.discovery.peer_exchange import PeerExchange
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy.address_book import AddressBook, PeerRow
from sfnode.network.policy.addresses import (
    Address,
    author_of_peer,
    parse_address,
    parse_announce,
    parse_bootstrap,
    parse_listen,
    parse_untrusted,
    peer_of_author,
    reachable_addresses,
)
from sfnode.network.policy.node_names import NameBook
from sfnode.network.sessions.open_sessions import OpenSessions
from sfnode.network.sessions.session import SendQueue


def peer(number: int) -> PeerId:
    return peer_of_author(number.to_bytes(32, "big"))


OWN = peer(0)


def book(*bootstrap: str) -> AddressBook:
    parsed = tuple(parse_bootstrap(text) for text in bootstrap)
    return AddressBook(own_peer=OWN, bootstrap=parsed, chance=random.Random(1))


def address(number: int) -> Address:
    return parse_address(f"/ip4/10.0.{number // 250}.{number % 250 + 1}/tcp/4001")


# --- peer ids and addresses


def test_peer_id__some_key__is_what_libp2p_prints() -> None:
    key_pair = create_new_key_pair(bytes(range(32)))
    named = str(ID.from_pubkey(key_pair.public_key))
    assert peer_of_author(key_pair.public_key.to_bytes()) == named
    assert author_of_peer(named) == key_pair.public_key.to_bytes()


@given(st.binary(min_size=32, max_size=32))
def test_peer_id__any_key__comes_back(key: bytes) -> None:
    named = peer_of_author(key)
    assert named.startswith("12D3KooW")
    assert author_of_peer(named) == key


@given(st.one_of(st.text(), st.text(alphabet="123ABCabc", min_size=52, max_size=52).map(lambda text: "1" + text[1:])))
def test_peer_id__any_other_text__value_error(text: str) -> None:
    with pytest.raises(ValueError, match="peer id"):
        author_of_peer(text)


@pytest.mark.parametrize(
    "text", ["/ip4/1.2.3.4/tcp/1", "/ip6/2001:db8::1/tcp/65535", "/dns/a.example/tcp/4001", "/dns4/localhost/tcp/1"]
)
def test_address__well_formed__is_written_back_the_same(text: str) -> None:
    assert str(parse_address(text)) == text
    assert str(parse_address(f"{text}/p2p/{OWN}")) == f"{text}/p2p/{OWN}"


MALFORMED = [
    "",
    "1.2.3.4:4001",
    "/ip4/1.2.3.4",
    "/ip4/1.2.3/tcp/1",
    "/ip4/1.2.3.4/udp/1",
    "/ip4/1.2.3.4/tcp/65536",
    "/ip4/1.2.3.4/tcp/-1",
    "/ip4/1.2.3.4/tcp/\u0661",
    "/ip6/1.2.3.4/tcp/1",
    "/dns/-a/tcp/1",
    "/dns/a b/tcp/1",
    "/onion/abc/tcp/1",
    "/ip4/1.2.3.4/tcp/1/p2p/QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
    f"/ip4/1.2.3.4/tcp/1/p2p/{OWN}/p2p-circuit",
]


@pytest.mark.parametrize("text", MALFORMED)
def test_address__malformed__operator_error_names_it(text: str) -> None:
    for parse in (parse_bootstrap, parse_listen, parse_announce):
        with pytest.raises(OperatorError, match="address"):
            parse(text)
    assert parse_untrusted((text,)) == ()


def test_listen__link_local_of_ipv6__operator_error_says_why() -> None:
    """It was an invalid argument."""
    with pytest.raises(OperatorError, match="needs a zone, which cannot be given: listen on /ip6/::"):
        parse_listen("/ip6/fe80::1/tcp/4001")


@pytest.mark.parametrize("text", ["/ip4/0.0.0.0/tcp/1", "/ip6/::/tcp/1", "/ip4/1.2.3.4/tcp/0"])
def test_announce__cannot_be_dialled__operator_error(text: str) -> None:
    with pytest.raises(OperatorError, match="cannot"):
        parse_announce(text)


@pytest.mark.parametrize(
    ("said", "observed_host", "expected"),
    [
        ("/ip4/0.0.0.0/tcp/4001", "203.0.113.5", ("/ip4/203.0.113.5/tcp/4001",)),
        ("/ip4/0.0.0.0/tcp/4001", "2001:db8::5", ("/ip6/2001:db8::5/tcp/4001",)),
        ("/ip4/198.51.100.1/tcp/4001", "203.0.113.5", ("/ip4/198.51.100.1/tcp/4001",)),
        ("/ip4/127.0.0.1/tcp/4001", "127.0.0.1", ("/ip4/127.0.0.1/tcp/4001",)),
        ("/ip4/127.0.0.1/tcp/22", "203.0.113.5", ()),
        ("/dns4/localhost/tcp/22", "203.0.113.5", ()),
    ],
)
def test_reachable_addresses__as_seen_from_here__make_sense(
    said: str, observed_host: str, expected: tuple[str, ...]
) -> None:
    found = reachable_addresses(parse_untrusted((said,)), observed_host=observed_host)
    assert tuple(map(str, found)) == expected


# --- frames


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=20), st.integers(1, 40))
def test_frames__cut_into_pieces__come_back_whole(payloads: list[bytes], piece: int) -> None:
    stream = b"".join(map(frame, payloads))
    parser = FrameParser(50)
    found = []
    for start in range(0, len(stream), piece):
        parser.feed_untrusted(stream[start : start + piece])
        while (payload := parser.next_payload()) is not None:
            found.append(payload)
    assert found == payloads


@pytest.mark.parametrize("length", [0, 101, 2**32 - 1])
def test_frames__length_out_of_bounds__rejected_before_the_payload_comes(length: int) -> None:
    parser = FrameParser(100)
    parser.feed_untrusted(length.to_bytes(4, "big"))
    with pytest.raises(Reject) as rejected:
        parser.next_payload()
    assert rejected.value.reason == RejectReason.FRAME


# --- queue


async def test_send_queue__many_frames__are_joined_up_to_the_bound() -> None:
    queue = SendQueue()
    assert all(queue.put(bytes(30_000)) for _ in range(5))
    sizes = []
    queue.put_last(b"bye")
    while (batch := await queue.take()) is not None:
        sizes.append((len(batch[0]), batch[1]))
    assert sizes == [(60_008, 2), (60_008, 2), (30_004 + 7, 2)]


async def test_send_queue__full__refuses_but_takes_the_last_word() -> None:
    queue = SendQueue()
    accepted = sum(queue.put(bytes(60_000)) for _ in range(10))
    assert accepted == bounds.SEND_QUEUE_BYTES_MAX // 60_004
    queue.put_last(b"bye")
    assert not queue.put(b"late")
    frames = 0
    while (batch := await queue.take()) is not None:
        frames += batch[1]
    assert frames == bounds.SEND_QUEUE_BYTES_MAX // 60_004 + 1


async def test_send_queue__empty__take_waits_for_the_next() -> None:
    queue = SendQueue()
    taken: list[object] = []

    async def take() -> None:
        taken.append(await queue.take())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await wait_all_tasks_blocked()
        assert not taken
        queue.put(b"x")
    assert taken == [(frame(b"x"), 1)]


# --- address book


def test_address_book__bootstrap__is_due_at_once_and_never_forgotten() -> None:
    named = f"{address(1)}/p2p/{peer(1)}"
    known = book(named)
    for number in range(2, 3_000):
        known.learn(peer(number), (address(number),), source=peer(number))
    for _ in range(40):
        known.failed(peer(1), 0.0)
    assert known.addresses(peer(1)) == (address(1),)
    assert len(known.rows()) == bounds.KNOWN_PEERS_MAX
    assert peer(1) in known.due(bounds.BACKOFF_BOOTSTRAP_MAX_S, exclude=frozenset())


def test_address_book__failures__back_off_with_jitter_and_bounds() -> None:
    known = book()
    known.learn(peer(1), (address(1),), source=peer(2))
    waits = [known.failed(peer(1), 100.0) for _ in range(60)]
    assert waits[0] <= bounds.BACKOFF_START_S
    assert max(waits) <= bounds.BACKOFF_MAX_S
    assert max(waits[20:]) > bounds.BACKOFF_MAX_S / 2
    assert len(set(waits)) == 60
    assert known.due(100.0, exclude=frozenset()) == ()
    assert known.due(100.0 + bounds.BACKOFF_MAX_S, exclude=frozenset()) == (peer(1),)
    assert known.due(100.0 + bounds.BACKOFF_MAX_S, exclude=frozenset({peer(1)})) == ()


def test_address_book__refused__waits_at_least_as_told_but_a_bootstrap_no_longer_than_a_minute() -> None:
    """A node of another run is dialled once an hour (SPEC 8.8); joiners wait for the bootstrap."""
    known = book(f"{address(3)}/p2p/{peer(3)}")
    known.learn(peer(1), (address(1),), source=peer(2))
    assert known.failed(peer(1), 0.0, at_least_s=bounds.REFUSED_S) >= bounds.REFUSED_S
    assert known.failed(peer(1), 0.0, at_least_s=bounds.WRONG_RUN_S) == bounds.WRONG_RUN_S
    assert known.failed(peer(3), 0.0, at_least_s=bounds.WRONG_RUN_S) == bounds.BACKOFF_BOOTSTRAP_MAX_S


def test_address_book__success__resets_failures_and_moves_the_address_to_the_front() -> None:
    known = book()
    known.learn(peer(1), (address(1), address(2)), source=peer(3))
    for _ in range(10):
        known.failed(peer(1), 0.0)
    known.succeeded(peer(1), address(2), unix_ms=5)
    assert known.rows() == (
        PeerRow(
            peer=peer(1),
            addresses=(str(address(2)), str(address(1))),
            last_success_unix_ms=5,
            failures=0,
            is_bootstrap=False,
        ),
    )


def test_address_book__one_neighbour_tells_of_many__only_so_many_are_kept() -> None:
    known = book()
    for number in range(1, 500):
        known.learn(peer(number), (address(number),), source=peer(1_000))
    assert len(known.rows()) == bounds.UNVERIFIED_PER_SOURCE_MAX


def test_address_book__liars__never_displace_a_peer_that_was_reached() -> None:
    known = book()
    for number in range(1, bounds.KNOWN_PEERS_MAX + 1):
        known.succeeded(peer(number), address(number), unix_ms=number)
    known.learn(peer(5_000), (address(1),), source=peer(5_001))
    assert peer(5_000) not in {row.peer for row in known.rows()}


def test_address_book__peer_with_many_addresses__keeps_eight_and_the_last_good_one() -> None:
    known = book()
    known.succeeded(peer(1), address(0), unix_ms=1)
    known.learn(peer(1), tuple(address(number) for number in range(1, 30)), source=peer(1))
    assert len(known.addresses(peer(1))) == bounds.ADDRESSES_PER_PEER_MAX
    assert known.addresses(peer(1))[0] == address(0)


def test_address_book__own_peer__is_never_learned() -> None:
    known = book(f"{address(1)}/p2p/{OWN}")
    known.learn(OWN, (address(1),), source=peer(1))
    known.restore(
        (PeerRow(peer=OWN, addresses=(str(address(1)),), last_success_unix_ms=1, failures=0, is_bootstrap=True),)
    )
    assert known.rows() == ()


def test_address_book__more_bootstraps_than_are_kept__those_met_last_stay_beside_the_named_one() -> None:
    many = bounds.BOOTSTRAPS_KEPT_MAX + 3
    earlier = book(*(f"{address(number)}/p2p/{peer(number)}" for number in range(1, many + 1)))
    for number in range(2, many + 1):
        earlier.succeeded(peer(number), address(number), unix_ms=number)
    later = book(f"{address(many)}/p2p/{peer(many)}")
    later.restore(earlier.rows())
    kept = [number for number in range(1, many + 1) if later.is_bootstrap(peer(number))]
    assert kept == list(range(many - bounds.BOOTSTRAPS_KEPT_MAX, many + 1))


def test_address_book__rows__survive_a_restart_anchors_first() -> None:
    known = book()
    for number in range(1, 20):
        known.learn(peer(number), (address(number),), source=peer(number))
    known.succeeded(peer(7), address(7), unix_ms=70)
    known.succeeded(peer(9), address(9), unix_ms=90)
    again = book(f"{address(3)}/p2p/{peer(3)}")
    again.restore(known.rows())
    due = again.due(0.0, exclude=frozenset())
    assert set(due) == {peer(number) for number in range(1, 20)}
    assert set(due[:2]) == {peer(7), peer(9)}
    assert due[2] == peer(3)


def test_address_book__full_of_peers_never_reached__every_other_dial_is_to_one_that_was() -> None:
    """Found in the laboratory: after a restart nodes looked for each other among invented peers for minutes."""
    known = book(f"{address(3)}/p2p/{peer(3)}")
    for number in range(100, 800):
        known.learn(peer(number), (address(number),), source=peer(number))
    for number in range(10, 20):
        known.succeeded(peer(number), address(number), unix_ms=number)
    known.failed(peer(11), 0.0, at_least_s=1.0)
    due = known.due(0.0, exclude=frozenset({peer(10)}))
    assert (set(due[:2]), due[2]) == ({peer(18), peer(19)}, peer(3))
    assert set(due[3:15:2]) == {peer(number) for number in range(12, 18)}
    assert len(due) == len(set(due)) == 2 + 1 + 6 + 700


def test_address_book__share__tells_of_reached_and_connected_peers_only() -> None:
    known = book()
    for number in range(1, 6):
        known.learn(peer(number), (address(number),), source=peer(number))
    known.succeeded(peer(1), address(1), unix_ms=1)
    known.succeeded(peer(2), address(2), unix_ms=1)
    shared = known.share(exclude=peer(2), connected=frozenset({peer(3)}))
    assert shared == (peer(3), peer(1))


def test_exchange__book_full_of_long_names__answers_with_what_fits_into_a_frame() -> None:
    """Found by reading: 32 peers with 8 addresses of the longest kind made a frame that no peer would accept."""
    known = book()
    for number in range(1, bounds.PEERS_PER_ANSWER_MAX + 1):
        host = ".".join(["a" * 60] * 3 + ["b" * 50])
        addresses = parse_untrusted(tuple(f"/dns4/{host}/tcp/{4_001 + port}" for port in range(ADDRESSES_PER_PEER_MAX)))
        known.learn(peer(number), addresses, source=peer(number))
        known.succeeded(peer(number), addresses[0], unix_ms=1)
    exchange = PeerExchange(
        config=NetworkConfig(), names=NameBook(bytes(32)), book=known, open_sessions=OpenSessions(OWN)
    )
    everything = exchange.recommend(peer(99), "203.0.113.7", bytes_max=1 << 20)
    fitting = exchange.recommend(peer(99), "203.0.113.7", bytes_max=FRAME_BYTES_MAX)
    assert len(encode(Peers(peers=everything))) > FRAME_BYTES_MAX >= len(encode(Peers(peers=fitting)))
    assert 0 < len(fitting) < len(everything) == bounds.PEERS_PER_ANSWER_MAX
