"""A limited number of places: with a limit for each holder, or shared fairly by time. Pure: no clock, no sockets."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sfnode.network import bounds

_HOLDERS_REMEMBERED = 1_024  # beyond it the earliest is forgotten and counts as new


class Places:
    """Counts the places that each holder has taken. The holder None counts only towards the total."""

    def __init__(self, places_max: int, per_holder_max: int) -> None:
        self._places_max = places_max
        self._per_holder_max = per_holder_max
        self._taken: Counter[str | None] = Counter()

    def has_room(self, holder: str | None) -> bool:
        """Return whether this holder may take another place now."""
        is_full = self._taken.total() >= self._places_max
        return not is_full and (holder is None or self._taken[holder] < self._per_holder_max)

    @contextmanager
    def taken(self, holder: str | None) -> Iterator[None]:
        """Hold one place for ``holder`` in the context. Call `has_room` first, without a checkpoint in between."""
        assert self.has_room(holder)
        self._taken[holder] += 1
        try:
            yield
        finally:
            self._taken[holder] -= 1
            if not self._taken[holder]:
                del self._taken[holder]


@dataclass(slots=True, kw_only=True, eq=False)
class FairPlace:
    """One place. Its holder must stop when `is_lost` is set."""

    holder: str
    crowd: str
    since_s: float
    asked_s: float
    files: int = 0  # files asked for; all but the last are complete
    is_lost: bool = False


class FairPlaces:
    """Shares a number of places so that neither many peers of one network nor a slow peer can keep others out.

    When all places are taken, a newcomer may get another's, by the three rules of `_victim`. The loser is refused when
    it asks for the next part.
    """

    def __init__(
        self, places_max: int, per_holder_max: int, unfinished_turn_s: float = bounds.UNFINISHED_TURN_S
    ) -> None:
        """``unfinished_turn_s``: how long a holder keeps its place before its first file has come."""
        self._places_max = places_max
        self._per_holder_max = per_holder_max
        self._unfinished_turn_s = unfinished_turn_s
        self._places: list[FairPlace] = []
        self._held_s: Counter[str] = Counter()  # seconds in places that were left, by holder

    def take(self, holder: str, crowd: str | None, now_s: float) -> FairPlace | None:
        """Return a place, or None if this holder gets none now. ``crowd``: group that it counts with; None: itself."""
        if sum(place.holder == holder for place in self._places) >= self._per_holder_max:
            return None
        place = FairPlace(holder=holder, crowd=crowd or holder, since_s=now_s, asked_s=now_s)
        if len(self._places) >= self._places_max:
            if (victim := self._victim(place, now_s)) is None:
                return None
            victim.is_lost = True
            self.leave(victim, now_s)
        self._places.append(place)
        return place

    def leave(self, place: FairPlace, now_s: float) -> None:
        """Free the place, unless it was lost before."""
        if place not in self._places:
            return
        self._places.remove(place)
        self._held_s[place.holder] += now_s - place.since_s  # type: ignore[assignment]  # a Counter of seconds
        while len(self._held_s) > _HOLDERS_REMEMBERED:
            del self._held_s[next(iter(self._held_s))]

    def _victim(self, newcomer: FairPlace, now_s: float) -> FairPlace | None:
        """Choose the place that the newcomer gets, by the first of three rules that finds one; None if none does."""
        others = [place for place in self._places if place.holder != newcomer.holder]
        # 1. The one that has been idle longest.
        if idle := [place for place in others if now_s - place.asked_s >= bounds.OBSERVER_IDLE_S]:
            return min(idle, key=lambda place: place.asked_s)
        # 2. One of a network with at least two more, or of a peer with two more in the same or a larger network: with
        # one more, the loser could take it back. Of the places A A A B, a newcomer of B gets an A; of A A B, none.
        crowds = Counter(place.crowd for place in self._places)
        holders = Counter(place.holder for place in self._places)

        def has_too_many(place: FairPlace) -> bool:
            network_more = crowds[place.crowd] - crowds[newcomer.crowd]
            peer_more = holders[place.holder] - holders[newcomer.holder]
            return network_more >= 2 or (peer_more >= 2 and (network_more == 1 or place.crowd == newcomer.crowd))

        if greedy := [place for place in others if has_too_many(place)]:  # the youngest: it has the least to lose
            return max(greedy, key=lambda place: (crowds[place.crowd], holders[place.holder], place.since_s))
        # 3. One of the holder that has held places longest in all, longer than the newcomer, and has had its turn.
        held_s = {
            holder: self._held_s[holder] + sum(now_s - each.since_s for each in self._places if each.holder == holder)
            for holder in (*holders, newcomer.holder)
        }
        over = [
            place
            for place in others
            if now_s - place.since_s >= (bounds.TURN_S if place.files > 1 else self._unfinished_turn_s)
            and held_s[place.holder] > held_s[newcomer.holder]
        ]
        return max(over, key=lambda place: held_s[place.holder], default=None)
