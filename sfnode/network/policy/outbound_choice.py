"""Choice of outbound neighbours: whom to dial first and who gives way, so that they lie in several networks. Pure.

Goal: an attacker who fills the address book with many addresses of one network does not become all our outbound
neighbours. A crowded network is still dialled if no other is known, because a run may live in one network.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from protocol.wire import PeerId
from sfnode.network.policy.ip_groups import Group

OUTBOUND_GROUP_MAX = 2  # per network (/16, IPv6 /32) while peers of others can be dialled: a quarter
Candidate = tuple[PeerId, Group | None]  # that may be dialled; None for private addresses and host names: not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialled:
    """An outbound session. ``is_kept``: it is an anchor or a bootstrap and never gives way."""

    peer: PeerId
    group: Group | None
    started_s: float
    is_kept: bool


def dial_order(
    ready: Sequence[PeerId], *, anchors: frozenset[PeerId], bootstraps: frozenset[PeerId], reached: frozenset[PeerId]
) -> tuple[PeerId, ...]:
    """Order ``ready``: anchors, bootstraps, then alternately a peer that was ``reached`` before and an unverified one.

    So an attacker who fills the address book with unreachable peers takes at most half of these dials.
    """
    first = [*(peer for peer in ready if peer in anchors), *(peer for peer in ready if peer in bootstraps - anchors)]
    others = [peer for peer in ready if peer not in anchors | bootstraps]
    known = [peer for peer in others if peer in reached]
    unverified = [peer for peer in others if peer not in reached]
    return (*first, *(peer for pair in zip_longest(known, unverified) for peer in pair if peer is not None))


def spread(ready: Iterable[Candidate], taken: Iterable[Group | None], wanted: int) -> tuple[PeerId, ...]:
    """Return ``wanted`` of ``ready`` in its order; peers of networks that have their part of ``taken`` come last."""
    # Each chosen peer counts at once, so that the chosen ones are spread among themselves, too.
    crowd = Counter(taken)
    first: list[PeerId] = []
    last: list[PeerId] = []
    for peer, group in ready:
        (last if _is_full(group, crowd) else first).append(peer)
        crowd[group] += 1
        if len(first) >= wanted:
            break
    return tuple((first + last)[:wanted])


def is_crowded(taken: Iterable[Group | None]) -> bool:
    """Return whether one network has more than its part of ``taken``."""
    crowd = Counter(taken)
    return any(_is_over(group, crowd) for group in crowd)


def elsewhere(ready: Iterable[Candidate], taken: Iterable[Group | None]) -> PeerId | None:
    """Return the first of ``ready`` whose network has less than its part of ``taken``; None if there is none."""
    crowd = Counter(taken)
    return next((peer for peer, group in ready if not _is_full(group, crowd)), None)


def choose_to_leave(dialled: Sequence[Dialled]) -> PeerId | None:
    """Return the youngest session of the most crowded network; None if no network has more than its part."""
    crowd = Counter(session.group for session in dialled)
    open_to_choice = [each for each in dialled if not each.is_kept and _is_over(each.group, crowd)]
    if not open_to_choice:
        return None
    return max(open_to_choice, key=lambda each: (crowd[each.group], each.started_s, each.peer)).peer


def _is_full(group: Group | None, crowd: Counter[Group | None]) -> bool:
    return group is not None and crowd[group] >= OUTBOUND_GROUP_MAX


def _is_over(group: Group | None, crowd: Counter[Group | None]) -> bool:
    return group is not None and crowd[group] > OUTBOUND_GROUP_MAX
