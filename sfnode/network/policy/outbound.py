"""Whom to dial first, and who gives way, so that the neighbours we chose lie in several networks. Pure.

Goal: an attacker who owns many addresses of one network, and fills the address book with them, does not become all the
neighbours that we dial. Nobody is refused for their network as long as nobody else is there: a run may live in one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from protocol.wire import PeerId
from sfnode.network.policy.ip_groups import Group

OUTBOUND_TARGET: Final = 6  # random graphs of this degree stay connected when a third of the nodes vanish
OUTBOUND_MAX: Final = 8  # two more than the target, for re-checking bootstraps
OUTBOUND_GROUP_MAX: Final = 2  # of one network (/16, IPv6 /32) while peers of others can be dialled: a quarter


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A peer that may be dialled; ``group`` None where its network is not counted: private ones, host names."""

    peer: PeerId
    group: Group | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialled:
    """One session that we dialled. ``is_kept``: an anchor or a bootstrap, which gives way to nobody."""

    peer: PeerId
    group: Group | None
    started_s: float
    is_kept: bool


def dial_order(
    ready: Sequence[PeerId], *, anchors: frozenset[PeerId], bootstraps: frozenset[PeerId], reached: frozenset[PeerId]
) -> tuple[PeerId, ...]:
    """Anchors, then bootstraps, then in turn a peer that was ``reached`` before and an unverified one.

    Filling the address book with unreachable peers takes half of the dials, not most.
    """
    first = [*(peer for peer in ready if peer in anchors), *(peer for peer in ready if peer in bootstraps - anchors)]
    others = [peer for peer in ready if peer not in anchors | bootstraps]
    known = [peer for peer in others if peer in reached]
    unverified = [peer for peer in others if peer not in reached]
    return (*first, *(peer for pair in zip_longest(known, unverified) for peer in pair if peer is not None))


def spread(ready: Iterable[Candidate], taken: Iterable[Group | None], wanted: int) -> tuple[PeerId, ...]:
    """``wanted`` of ``ready``, in its order, but those of networks that have their part of ``taken`` come last."""
    crowd = Counter(taken)
    first: list[PeerId] = []
    last: list[PeerId] = []
    for candidate in ready:
        (last if _is_full(candidate.group, crowd) else first).append(candidate.peer)
        crowd[candidate.group] += 1
        if len(first) >= wanted:
            break
    return tuple((first + last)[:wanted])


def is_crowded(taken: Iterable[Group | None]) -> bool:
    """Whether one network has more than its part."""
    crowd = Counter(taken)
    return any(_is_over(group, crowd) for group in crowd)


def elsewhere(ready: Iterable[Candidate], taken: Iterable[Group | None]) -> PeerId | None:
    """The first of ``ready`` whose network has less than its part of ``taken``."""
    crowd = Counter(taken)
    return next((each.peer for each in ready if not _is_full(each.group, crowd)), None)


def choose_to_leave(dialled: Sequence[Dialled]) -> PeerId | None:
    """Who gives way once there are more neighbours than wanted: the youngest of the most crowded network; nobody where
    no network has more than its part."""
    crowd = Counter(session.group for session in dialled)
    open_to_choice = [each for each in dialled if not each.is_kept and _is_over(each.group, crowd)]
    if not open_to_choice:
        return None
    return max(open_to_choice, key=lambda each: (crowd[each.group], each.started_s, each.peer)).peer


def _is_full(group: Group | None, crowd: Counter[Group | None]) -> bool:
    return group is not None and crowd[group] >= OUTBOUND_GROUP_MAX


def _is_over(group: Group | None, crowd: Counter[Group | None]) -> bool:
    return group is not None and crowd[group] > OUTBOUND_GROUP_MAX
