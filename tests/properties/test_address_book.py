"""Any course of learning, dialling and meeting peers: what is in use stays, the bound holds, no address is knocked at
without an end."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import Phase, given, settings, strategies as st

from protocol.wire import PeerId
from sfnode.network import bounds
from sfnode.network.policy.address_book import AddressBook
from sfnode.network.policy.addresses import Address, parse_address, peer_of_author

OWN = peer_of_author(bytes(32))
STRANGER = parse_address("/ip4/203.0.113.7/tcp/4001")
SOURCES, IDS = 8, 60


def peer(number: int) -> PeerId:
    return peer_of_author(number.to_bytes(32, "big"))


def address(number: int) -> Address:
    return parse_address(f"/ip4/10.0.{number // 250}.{number % 250 + 1}/tcp/4001")


@settings(max_examples=15, deadline=None, phases=(Phase.reuse, Phase.generate))  # to shrink a full book takes minutes
@given(st.sets(st.integers(1, bounds.KNOWN_PEERS_MAX), min_size=1, max_size=40), st.integers(1, 200), st.integers())
def test_address_book__full_and_strangers_are_told_of__what_is_in_use_is_never_forgotten(
    used: set[int], strangers: int, seed: int
) -> None:
    """A peer that was being dialled was forgotten, and the network's task ended with an IndexError."""
    in_use = frozenset(map(peer, used))
    book = AddressBook(own_peer=OWN, bootstrap=(), chance=random.Random(seed))
    book.in_use = lambda: in_use
    for number in range(1, bounds.KNOWN_PEERS_MAX + 1):
        book.learn(peer(number), (address(number),), source=peer(number % 50 + 1))
    for each in in_use:
        book.failed(each, 0.0)  # the worst of all, but for their use
    for number in range(strangers):
        book.learn(peer(10_000 + number), (address(number),), source=peer(20_000 + number))
    assert all(book.addresses(each) for each in in_use)
    assert len(book.rows()) == bounds.KNOWN_PEERS_MAX


def dials(book: AddressBook, now_s: float) -> list[tuple[PeerId, Address]]:
    """Whom a dialler that finds nobody anywhere dials now, and where."""
    made: list[tuple[PeerId, Address]] = []
    for each in book.due(now_s, exclude=frozenset())[: bounds.DIALS_AT_ONCE_MAX]:
        for found in book.dialable(each, now_s):
            book.tried_at(each, found, now_s)
            made.append((each, found))
        book.failed(each, now_s)
    return made


def dialled_in_a_minute(book: AddressBook) -> int:
    """How often such a dialler knocks at the host of STRANGER within 60 s."""
    return sum(found.host == STRANGER.host for tenth in range(600) for _, found in dials(book, tenth / 10))


def test_address_book__eight_liars_name_one_address_under_480_ids__it_is_dialled_seven_times_a_minute() -> None:
    """It was dialled 3,432 times: each id had a back-off of its own."""
    book = AddressBook(own_peer=OWN, bootstrap=(), chance=random.Random(1))
    for number in range(SOURCES * IDS):
        book.learn(peer(100 + number), (STRANGER,), source=peer(number % SOURCES + 1))
    assert 3 <= dialled_in_a_minute(book) <= 7


def test_address_book__liars_name_ever_new_ports_of_one_host__it_is_dialled_a_dozen_times_a_minute() -> None:
    """Eight addresses of an id made 7,950 dials of closed ports: each rested, and there was always another."""
    book = AddressBook(own_peer=OWN, bootstrap=(), chance=random.Random(1))
    for number in range(SOURCES * IDS):
        ports = tuple(replace(STRANGER, port=1 + 8 * number + place) for place in range(8))
        book.learn(peer(100 + number), ports, source=peer(number % SOURCES + 1))
    assert 3 <= dialled_in_a_minute(book) <= bounds.HOST_DIALS_BURST + 60 / bounds.HOST_DIAL_S + 1


def test_address_book__another_peer_answers_at_one_port_of_a_host__dials_of_its_dead_ports_keep_their_rate() -> None:
    """Each such answer forgot what had been dialled there: 725 dials in ten minutes."""
    book, dead = AddressBook(own_peer=OWN, bootstrap=(), chance=random.Random(1)), 0
    for second in range(600):
        for number in range(4):
            port = 1 if number == 0 else 1_000 + (4 * second + number) % 60_000
            book.learn(peer(100 + 4 * second + number), (replace(STRANGER, port=port),), source=peer(1 + number))
        for each, found in dials(book, second):
            dead += found.port != 1
            if found.port == 1:
                book.belongs_to_another(each, found, second)
    assert dead <= bounds.HOST_DIALS_BURST + 600 / bounds.HOST_DIAL_S + 1


def test_address_book__peers_that_were_reached_name_a_stranger__only_what_worked_is_dialled_at_once() -> None:
    """Ids that were met once had no rest: 16 of them made 847 dials of a stranger in 75 s."""
    book = AddressBook(own_peer=OWN, bootstrap=(), chance=random.Random(1))
    for number in range(16):
        book.learn(peer(1 + number), (address(number),), source=peer(1 + number))
        book.succeeded(peer(1 + number), address(number), unix_ms=1)
        ports = tuple(replace(STRANGER, port=1 + 8 * number + place) for place in range(7))
        book.learn(peer(1 + number), ports, source=peer(1 + number))
    assert 3 <= dialled_in_a_minute(book) <= bounds.HOST_DIALS_BURST + 60 / bounds.HOST_DIAL_S + 1
    assert book.dialable(peer(1), 0.0)[:1] == (address(0),)


def test_address_book__liars_name_ever_new_hosts__dials_have_a_rate() -> None:
    book, made = AddressBook(own_peer=OWN, bootstrap=(), chance=random.Random(1)), 0
    for second in range(120):
        for number in range(64):
            hosts = tuple(address(8 * (64 * second + number) % 12_000 + place) for place in range(8))
            book.learn(peer(100 + number), hosts, source=peer(1 + number % SOURCES))
        made += len(dials(book, second))
    assert made <= bounds.UNVERIFIED_DIALS_BURST + 120 * bounds.UNVERIFIED_DIALS_PER_S + 1


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 40), st.booleans(), st.integers())
def test_address_book__liars_name_honest_ids_at_false_addresses__enough_are_dialled_at_their_own_within_five_minutes(
    honest: int, is_told_first: bool, seed: int
) -> None:
    """A liar that came back under a new id every three seconds kept a node from ever dialling peers it had not met: its
    eight addresses drove out the right one, and false dials put off the next by minutes."""
    book, chance = AddressBook(own_peer=OWN, bootstrap=(), chance=random.Random(seed)), random.Random(seed)
    right = {peer(1 + number): address(number) for number in range(honest)}
    missing = {*right}
    for second in range(300):
        if second % 3 == 0:  # the liar, under a new id
            for each in right:
                false = tuple(address(1_000 + chance.randrange(10_000)) for _ in range(8))
                book.learn(each, false, source=peer(100_000 + second))
        if second in (0, 1, 3, 7, 15, 31, 63, 127, 255) and (is_told_first or second):
            for each, where in right.items():  # an honest neighbour, which is asked at these times
                book.learn(each, (where,), source=peer(99_999))
        missing -= {each for each, found in dials(book, second) if found == right[each]}
    assert honest - len(missing) >= min(honest, bounds.OUTBOUND_TARGET)


def test_address_book__sixteen_dead_ids_at_a_host__a_live_one_there_is_dialled_within_a_minute() -> None:
    """A host rested for ten minutes after each failed dial there, so the dial that would have ended it did not come."""
    book = AddressBook(own_peer=OWN, bootstrap=(), chance=random.Random(1))
    for number in range(16):
        book.learn(peer(100 + number), (replace(STRANGER, port=100 + number),), source=peer(1))
    dialled_s = None
    for second in range(700):
        if second == 600:
            book.learn(peer(3), (STRANGER,), source=peer(2))
        if dialled_s is None and (peer(3), STRANGER) in dials(book, second):
            dialled_s = second
    assert dialled_s is not None and dialled_s <= 660


def test_address_book__peer_has_refused_for_an_hour__new_addresses_of_it_do_not_shorten_that() -> None:
    """With one false address every two seconds, an honest node was dialled 300 times in ten minutes."""
    book = AddressBook(own_peer=OWN, bootstrap=(), chance=random.Random(1))
    book.learn(peer(1), (STRANGER,), source=peer(2))
    book.failed(peer(1), 0.0, at_least_s=bounds.WRONG_RUN_S)
    book.learn(peer(1), (address(1),), source=peer(3))
    assert peer(1) not in book.due(bounds.WRONG_RUN_S - 1, exclude=frozenset())
    assert peer(1) in book.due(bounds.WRONG_RUN_S + 1, exclude=frozenset())


def test_address_book__false_id_at_a_peers_address_and_false_addresses_of_it__the_right_one_stays() -> None:
    book = AddressBook(own_peer=OWN, bootstrap=(), chance=random.Random(1))
    book.learn(peer(1), (STRANGER,), source=peer(2))
    book.learn(peer(9), (STRANGER,), source=peer(3))
    book.tried_at(peer(9), STRANGER, 0.0)
    book.belongs_to_another(peer(9), replace(STRANGER, peer=peer(9)), 0.0)
    book.learn(peer(1), tuple(address(number) for number in range(8)), source=peer(3))
    assert STRANGER in book.addresses(peer(1))


def test_address_book__bootstrap_was_reached_elsewhere__after_a_restart_that_address_comes_first() -> None:
    given = replace(address(1), peer=peer(1))
    book = AddressBook(own_peer=OWN, bootstrap=(given,), chance=random.Random(1))
    book.succeeded(peer(1), STRANGER, unix_ms=1)
    again = AddressBook(own_peer=OWN, bootstrap=(given,), chance=random.Random(1))
    again.restore(book.rows())
    for _ in range(9):
        again.tried_at(peer(1), STRANGER, 0.0)
    assert again.dialable(peer(1), 0.0) == (STRANGER, address(1))


def test_address_book__honest_peer_at_an_address_that_liars_name__is_dialled_once_it_was_reached() -> None:
    book = AddressBook(own_peer=OWN, bootstrap=(), chance=random.Random(1))
    book.learn(peer(1), (STRANGER,), source=peer(2))
    book.succeeded(peer(1), STRANGER, unix_ms=1)
    book.learn(peer(3), (STRANGER,), source=peer(2))
    for _ in range(20):
        book.tried_at(peer(1), STRANGER, 0.0)
        book.tried_at(peer(3), STRANGER, 0.0)
    assert book.dialable(peer(1), 0.0) == (STRANGER,)
    assert book.dialable(peer(3), 0.0) == () and peer(3) not in book.due(0.0, exclude=frozenset())


def test_address_book__ever_new_addresses_fail__those_that_rest_are_bounded() -> None:
    book = AddressBook(own_peer=OWN, bootstrap=(), chance=random.Random(1))
    for number in range(bounds.ADDRESSES_RESTING_MAX + 50):
        book.tried_at(peer(1), address(number), 0.0)
    assert len(book._resting) == bounds.ADDRESSES_RESTING_MAX


@given(st.integers(1, bounds.ADDRESSES_PER_PEER_MAX + 1), st.integers(0, 2 * bounds.ADDRESSES_PER_PEER_MAX))
def test_address_book__liar_names_addresses_of_a_bootstrap__those_of_the_operator_stay(named: int, lies: int) -> None:
    """Of two that the operator had named, such as one of each family, the second was forgotten."""
    operators = [replace(address(number), peer=peer(1)) for number in range(named)]
    book = AddressBook(own_peer=OWN, bootstrap=tuple(operators), chance=random.Random(1))
    for number in range(lies):
        book.learn(peer(1), (address(100 + number),), source=peer(2))
    held = book.addresses(peer(1))
    assert held[:named] == tuple(address(number) for number in range(named))[: bounds.ADDRESSES_PER_PEER_MAX]
    assert len(held) == min(named + lies, bounds.ADDRESSES_PER_PEER_MAX)


def test_address_book__liar_names_an_address_under_64_ids__the_right_one_is_dialled_soon() -> None:
    """Another peer answers there, so each false id costs one dial; the right one waited for ten hours."""
    book, now_s = AddressBook(own_peer=OWN, bootstrap=(), chance=random.Random(1)), 0.0
    for number in range(bounds.UNVERIFIED_PER_SOURCE_MAX):
        book.learn(peer(100 + number), (STRANGER,), source=peer(1))
    book.learn(peer(3), (STRANGER,), source=peer(2))
    while True:
        for each in book.due(now_s, exclude=frozenset())[:1]:
            if each == peer(3):
                assert now_s < 120.0
                return
            book.tried_at(each, STRANGER, now_s)
            book.belongs_to_another(each, replace(STRANGER, peer=each), now_s)
            book.failed(each, now_s)
        now_s += 1.0


def test_address_book__neighbour_has_named_64_that_nobody_can_dial__learns_of_others_after_some_dials() -> None:
    """Peers behind routers filled an honest bootstrap's quota until the node was started again."""
    book = AddressBook(own_peer=OWN, bootstrap=(), chance=random.Random(1))
    for number in range(bounds.UNVERIFIED_PER_SOURCE_MAX):
        book.learn(peer(100 + number), (address(number),), source=peer(1))
    book.learn(peer(3), (STRANGER,), source=peer(1))
    assert not book.addresses(peer(3))
    for _ in range(bounds.FAILURES_TO_GIVE_WAY):
        book.failed(peer(100), 0.0)
    book.learn(peer(3), (STRANGER,), source=peer(1))
    assert book.addresses(peer(3)) == (STRANGER,) and not book.addresses(peer(100))
    assert len(book) == bounds.UNVERIFIED_PER_SOURCE_MAX
