"""Outbound places: one network gets no more than its part of them, unless there is no other."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, strategies as st

from protocol.wire import PeerId
from sfnode.network import bounds
from sfnode.network.policy.ip_groups import Group
from sfnode.network.policy.outbound_choice import (
    OUTBOUND_GROUP_MAX,
    Candidate,
    Dialled,
    choose_to_leave,
    elsewhere,
    is_crowded,
    spread,
)

GROUPS = st.none() | st.integers(0, 3).map(lambda number: Group(f"group{number}"))
TAKEN = st.lists(GROUPS, max_size=8)
READY = st.lists(GROUPS, max_size=12).map(
    lambda groups: [(PeerId(f"peer{number}"), group) for number, group in enumerate(groups)]
)
DIALLED = st.lists(st.tuples(GROUPS, st.booleans()), max_size=8).map(
    lambda rows: [
        Dialled(peer=PeerId(f"peer{number}"), group=group, started_s=float(number), is_kept=is_kept)
        for number, (group, is_kept) in enumerate(rows)
    ]
)
LIMIT = OUTBOUND_GROUP_MAX
ATTACKER = Group("attacker")


@given(READY, TAKEN, st.integers(1, 8))
def test_spread__any_peers__as_many_as_wanted_and_crowded_networks_only_for_lack_of_others(
    ready: list[Candidate], taken: list[Group | None], wanted: int
) -> None:
    chosen = spread(ready, taken, wanted)
    assert len(chosen) == len(set(chosen)) == min(wanted, len(ready))
    groups = dict(ready)
    crowd = Counter([*taken, *(groups[peer] for peer in chosen)])
    if any(crowd[groups[peer]] > LIMIT for peer in chosen if groups[peer] is not None):
        left = [group for peer, group in groups.items() if peer not in chosen]
        assert all(group is not None and crowd[group] >= LIMIT for group in left)


def test_spread__attacker_has_most_of_the_book__gets_two_places_and_those_that_nobody_else_wants() -> None:
    attackers = [(PeerId(f"bad{number}"), ATTACKER) for number in range(100)]
    honest = [(PeerId(f"good{number}"), Group(f"group{number}")) for number in range(4)]
    chosen = spread([*attackers, *honest], [], 6)
    assert set(chosen) == {"bad0", "bad1", "good0", "good1", "good2", "good3"}
    assert spread([*attackers, *honest[:1]], [], 6)[:3] == ("bad0", "bad1", "good0")
    assert len(spread(attackers, [ATTACKER] * 5, 1)) == 1  # a run may live in one network


def test_spread__private_addresses__are_not_counted() -> None:
    lan = [(PeerId(f"peer{number}"), None) for number in range(6)]
    assert spread(lan, [None] * 2, 4) == ("peer0", "peer1", "peer2", "peer3")
    assert not is_crowded([None] * 8)


@given(READY, TAKEN)
def test_elsewhere__any_peers__names_the_first_in_a_network_with_room(
    ready: list[Candidate], taken: list[Group | None]
) -> None:
    with_room = [peer for peer, group in ready if group is None or taken.count(group) < LIMIT]
    assert elsewhere(ready, taken) == (with_room[0] if with_room else None)


@given(DIALLED)
def test_choose_to_leave__any_sessions__youngest_of_a_crowded_network_that_may_go(dialled: list[Dialled]) -> None:
    crowd = Counter(each.group for each in dialled)
    leaving = choose_to_leave(dialled)
    may_go = [each for each in dialled if each.group is not None and crowd[each.group] > LIMIT and not each.is_kept]
    if leaving is None:
        assert not may_go
        return
    (chosen,) = [each for each in may_go if each.peer == leaving]
    assert all(crowd[each.group] <= crowd[chosen.group] for each in may_go)
    assert all(each.started_s <= chosen.started_s for each in may_go if each.group == chosen.group)


@given(st.integers(0, 8), st.integers(0, 8))
def test_places__one_network_first_then_others__come_to_its_part(attackers: int, others: int) -> None:
    """One more is dialled elsewhere, then one of the crowd leaves: as long as there is somebody elsewhere."""
    groups: list[Group | None] = [ATTACKER] * attackers
    ready = [(PeerId(f"peer{number}"), Group(f"group{number}")) for number in range(others)]
    while is_crowded(groups) and (found := elsewhere(ready, groups)) is not None:
        groups += [group for peer, group in ready if peer == found]
        ready = [each for each in ready if each[0] != found]
        sessions = [
            Dialled(peer=PeerId(str(number)), group=group, started_s=number, is_kept=number < bounds.ANCHORS)
            for number, group in enumerate(groups)
        ]
        leaving = choose_to_leave(sessions)
        assert leaving is not None
        del groups[int(leaving)]
    assert groups.count(ATTACKER) == max(min(attackers, LIMIT), attackers - others)
