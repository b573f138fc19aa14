"""Inbound places: the choice of the neighbour that gives way when all are taken. Pure: no clock, no sockets.

Goal: an attacker with any number of connections and ids, but from few networks, cannot take the places of honest
neighbours. Keys are free and addresses of one network are cheap; networks, age and new records are not. So the oldest
and the most useful neighbours are never evicted. A newcomer never evicts a neighbour from a network that is less
crowded than its own. No network gets more than a quarter of the places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from protocol.wire import PeerId
from sfnode.network.policy.ip_groups import Group

PROTECTED_OLD: Final = 8  # the oldest inbound neighbours are never evicted
PROTECTED_USEFUL: Final = 8  # nor are those of the others that brought most new records


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundPlace:
    """An inbound session; ``news`` counts the records that it was the first to bring."""

    peer: PeerId
    group: Group
    started_s: float
    news: int


def choose_to_evict(places: Collection[InboundPlace], newcomer: Group) -> PeerId | None:
    """Return the peer that gives way to a newcomer: the youngest unprotected one of the most crowded network.

    None unless that network is more crowded than the newcomer's would be with the newcomer.
    """
    crowd = Counter(place.group for place in places)
    protected = _protected(places)
    open_to_choice = [place for place in places if place.peer not in protected]
    if not open_to_choice:
        return None
    youngest = _youngest_of_most(open_to_choice, crowd)
    return youngest.peer if crowd[youngest.group] > crowd[newcomer] + 1 else None


def choose_to_shed(places: Collection[InboundPlace]) -> PeerId | None:
    """Return the peer that goes when there must be fewer; None if none is left.

    It is the youngest unprotected one of the most crowded network. If all are protected, it is the one that brought the
    fewest new records; of several such, the youngest.
    """
    protected = _protected(places)
    open_to_choice = [place for place in places if place.peer not in protected]
    if open_to_choice:
        return _youngest_of_most(open_to_choice, Counter(place.group for place in places)).peer
    return max(places, key=lambda place: (-place.news, place.started_s, place.peer)).peer if places else None


def _youngest_of_most(places: Collection[InboundPlace], crowd: Counter[Group]) -> InboundPlace:
    return max(places, key=lambda place: (crowd[place.group], place.started_s, place.peer))


def _protected(places: Collection[InboundPlace]) -> frozenset[PeerId]:
    """Return the oldest peers, and the most useful of the others."""
    by_age = sorted(places, key=lambda place: (place.started_s, place.peer))
    old, others = by_age[:PROTECTED_OLD], by_age[PROTECTED_OLD:]
    useful = sorted((place for place in others if place.news > 0), key=lambda place: (-place.news, place.peer))
    return frozenset(place.peer for place in (*old, *useful[:PROTECTED_USEFUL]))
