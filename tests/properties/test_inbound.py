"""Inbound places: what an attacker with few networks can take, whatever they open, close and bring."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from protocol.errors import OperatorError
from protocol.wire import PeerId
from sfnode.network import bounds
from sfnode.network.policy.inbound_eviction import PROTECTED_OLD, PROTECTED_USEFUL, InboundPlace, choose_to_evict
from sfnode.network.policy.ip_groups import DEFAULT_ORIGINS, Group, Origins, ip_group_of, is_public, parse_proxy

GROUPS = st.integers(0, 6).map(lambda number: Group(f"group{number}"))
PLACES = st.lists(st.tuples(GROUPS, st.integers(0, 1_000), st.integers(0, 50)), min_size=1, max_size=28).map(
    lambda rows: [
        InboundPlace(peer=PeerId(f"peer{number}"), group=group, started_s=float(started_s), news=news)
        for number, (group, started_s, news) in enumerate(rows)
    ]
)


@pytest.mark.parametrize(
    ("host", "group", "limited"),
    [
        ("8.8.4.4", "8.8.0.0/16", True),
        ("8.8.200.1", "8.8.0.0/16", True),
        ("::ffff:8.8.4.4", "8.8.0.0/16", True),
        ("2a00:1450:4001:80b::200e", "2a00:1450::/32", True),
        ("127.0.0.1", "127.0.0.0/24", False),
        ("::1", "::/64", False),
        ("192.168.7.1", "192.168.7.0/24", False),
        ("::ffff:192.168.7.1", "192.168.7.0/24", False),
        ("fe80::1%eth0", "fe80::/64", False),
        ("somewhere", "somewhere", False),
    ],
)
def test_group__of_an_address__is_its_network(host: str, group: str, limited: bool) -> None:
    assert (ip_group_of(host), is_public(host)) == (group, limited)


@given(PLACES, GROUPS)
def test_eviction__any_places__youngest_unprotected_of_a_more_crowded_group_or_nobody(
    places: list[InboundPlace], newcomer: Group
) -> None:
    crowd = Counter(place.group for place in places)
    chosen = choose_to_evict(places, newcomer)
    oldest = sorted(places, key=lambda place: (place.started_s, place.peer))[:PROTECTED_OLD]
    if chosen is None:
        return
    (victim,) = [place for place in places if place.peer == chosen]
    assert victim not in oldest
    more_useful = [place for place in places if place.news > victim.news and place not in oldest]
    assert victim.news == 0 or len(more_useful) + len([p for p in places if p.news == victim.news]) > (PROTECTED_USEFUL)
    assert crowd[victim.group] > crowd[newcomer] + 1


@given(PLACES)
def test_eviction__places_are_taken_and_left_by_it__never_goes_in_circles(places: list[InboundPlace]) -> None:
    """Each eviction makes the crowds more equal, so churning newcomers come to an end."""
    places = list(places)
    for number in range(1_000):
        newcomer = Group(f"group{number % 7}")
        chosen = choose_to_evict(places, newcomer)
        if chosen is None:
            continue
        before = sum(count**2 for count in Counter(place.group for place in places).values())
        places = [place for place in places if place.peer != chosen]
        places.append(InboundPlace(peer=PeerId(f"new{number}"), group=newcomer, started_s=2_000.0 + number, news=0))
        assert sum(count**2 for count in Counter(place.group for place in places).values()) < before


@given(honest=st.integers(8, 28), attacker_groups=st.integers(1, 3), dials=st.integers(50, 300), news=st.integers(0, 5))
def test_eviction__attacker_from_few_networks_dials_for_ever__honest_neighbours_keep_their_places(
    honest: int, attacker_groups: int, dials: int, news: int
) -> None:
    """Honest neighbours of as many networks were there first. The attacker gets the free places and none of theirs."""
    places = [
        InboundPlace(peer=PeerId(f"honest{n}"), group=Group(f"home{n}"), started_s=float(n), news=1)
        for n in range(honest)
    ]
    for number in range(dials):
        group = Group(f"bad{number % attacker_groups}")
        attack = InboundPlace(peer=PeerId(f"bad{number}"), group=group, started_s=100.0 + number, news=news)
        if len(places) >= bounds.INBOUND_MAX:
            chosen = choose_to_evict(places, group)
            if chosen is None:
                continue
            places = [place for place in places if place.peer != chosen]
        places.append(attack)
    assert sum(place.peer.startswith("honest") for place in places) == honest


def test_eviction__attacker_was_first_and_has_all_places__honest_newcomers_of_other_networks_get_in() -> None:
    places = [
        InboundPlace(peer=PeerId(f"bad{n}"), group=Group(f"bad{n % 4}"), started_s=float(n), news=0)
        for n in range(bounds.INBOUND_MAX)
    ]
    got_in = 0
    for number in range(40):
        chosen = choose_to_evict(places, Group(f"home{number}"))
        if chosen is not None:
            places = [place for place in places if place.peer != chosen]
            place = InboundPlace(
                peer=PeerId(f"h{number}"), group=Group(f"home{number}"), started_s=100.0 + number, news=1
            )
            places.append(place)
            got_in += 1
    assert got_in >= bounds.INBOUND_MAX - PROTECTED_OLD - PROTECTED_USEFUL
    assert sum(place.peer.startswith("h") for place in places) == got_in


def test_group_room__one_network_dials_in__gets_a_quarter_of_the_places_and_loopback_all() -> None:
    taken = [ip_group_of("8.8.1.1")] * 7
    has_room = DEFAULT_ORIGINS.has_group_room
    assert has_room("8.8.2.2", taken[:6], 28) and not has_room("8.8.2.2", taken, 28)
    assert has_room("9.9.9.9", taken, 28)
    assert has_room("127.0.0.1", [ip_group_of("127.0.0.1")] * 27, 28)
    assert has_room("8.8.2.2", [], 1)


# --- what the operator says about addresses


def test_crowd__public_and_private_addresses__a_network_counts_as_one_and_a_private_address_alone() -> None:
    crowd_of = DEFAULT_ORIGINS.crowd_of
    assert crowd_of("8.8.4.4") == crowd_of("8.8.200.1") != crowd_of("8.9.4.4")
    assert crowd_of("192.168.7.1") == crowd_of("::ffff:192.168.7.1") != crowd_of("192.168.7.2")
    assert crowd_of("somewhere") == "somewhere"


def test_crowd__private_networks_are_limited__count_as_one_like_public_ones() -> None:
    origins = Origins(is_private_limited=True)
    assert origins.crowd_of("192.168.7.1") == origins.crowd_of("192.168.7.2") != origins.crowd_of("192.168.8.1")
    assert not origins.has_group_room("10.0.0.9", [ip_group_of("10.0.0.1")] * 7, 28)


def test_crowd__operators_own_proxy__counts_in_all_only() -> None:
    proxies = tuple(map(parse_proxy, ("10.0.0.7", "8.8.4.0/24", "2a00:1450::/32")))
    origins = Origins(is_private_limited=True, proxies=proxies)
    for proxy in ("10.0.0.7", "::ffff:10.0.0.7", "8.8.4.4", "2a00:1450::1"):
        assert origins.crowd_of(proxy) is None
        assert origins.has_group_room(proxy, [ip_group_of(proxy)] * 27, 28)
    assert origins.crowd_of("10.0.0.8") is not None and origins.is_limited("8.8.5.4")


@pytest.mark.parametrize("text", ["10.0.0.300", "10.0.0.7/24", "proxy.example", ""])
def test_trusted_proxy__no_address_or_network__operator_error_says_what_is(text: str) -> None:
    with pytest.raises(OperatorError, match=r"--trusted-proxy .* such as 10\.0\.0\.7"):
        parse_proxy(text)
