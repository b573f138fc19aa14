"""A limited number of places, with a limit for each holder. Pure: no clock, no sockets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


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
