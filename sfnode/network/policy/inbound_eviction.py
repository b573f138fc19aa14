"""Inbound places: the choice of the neighbour that gives way when all are taken. Pure: no clock, no sockets.

Goal: an attacker with any number of connections and ids, but from few networks, cannot take the places of honest
neighbours. Keys are free and addresses of one network are cheap; networks, age and new records are not. So the oldest
and the most useful neighbours are never evicted. A newcomer never evicts a neighbour from a network that is less
crowded than its own. No network gets more than a quarter of the places.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from protocol.wire import PeerId
from sfnode.network.policy.ip_groups import Group

PROTECTED_OLD = 8  # the oldest inbound neighbours are never evicted
PROTECTED_USEFUL = 8  # nor are those of the others that brought most new records


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
    first = _first_to_go(places, crowd)
    return first.peer if first is not None and crowd[first.group] > crowd[newcomer] + 1 else None


def choose_to_shed(places: Collection[InboundPlace]) -> PeerId | None:
    """Return the peer that goes when there must be fewer; None if none is left.

    It is the youngest unprotected one of the most crowded network. If all are protected, it is the one that brought the
    fewest new records; of several such, the youngest.
    """
    first = _first_to_go(places, Counter(place.group for place in places))
    if first is None:
        first = max(places, key=lambda place: (-place.news, place.started_s, place.peer), default=None)
    return None if first is None else first.peer


def _first_to_go(places: Collection[InboundPlace], crowd: Counter[Group]) -> InboundPlace | None:
    """Return the youngest unprotected session of the most crowded network; None if all are protected.

    Protected are the oldest sessions, and the most useful of the others.
    """
    by_age = sorted(places, key=lambda place: (place.started_s, place.peer))
    others = by_age[PROTECTED_OLD:]
    useful = sorted((place for place in others if place.news > 0), key=lambda place: (-place.news, place.peer))
    open_to_choice = [place for place in others if place not in useful[:PROTECTED_USEFUL]]
    return max(open_to_choice, key=lambda place: (crowd[place.group], place.started_s, place.peer), default=None)
