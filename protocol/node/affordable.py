"""How many of a round's directions this node measures (SPEC 9.1.6): what it can while others measure all of them.

A machine a tenth as fast as the others measures a tenth of the directions, in each round, and nobody waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from statistics import median_low

from protocol.crypto import Author
from protocol.run import Method

_ROUNDS_KEPT = 5  # own ones: their median bears a slow first one and another now and then, and learns of a new load


class AffordableDirections:
    """What this node's rounds take, and those of others, with all directions. Times in ms come in as arguments.

    Attributes:
        chosen: M, the directions of the round under way.
    """

    def __init__(self, method: Method) -> None:
        self._method = method
        self._measured: dict[Author, int] = {}
        self._own_ms: deque[int] = deque(maxlen=_ROUNDS_KEPT)
        self.chosen = method.directions

    @property
    def own_ms(self) -> int | None:
        """What a round of all directions takes here; None before the first."""
        return median_low(self._own_ms) if self._own_ms else None

    def hear(self, author: Author, scalars: Sequence[int]) -> None:
        """The newest update of ``author``: K x D scalars."""
        self._measured[author] = self._method.directions_measured(scalars)

    def keep(self, authors: Container[Author]) -> None:
        """Forget all authors but these."""
        self._measured = {author: count for author, count in self._measured.items() if author in authors}

    def measured(self, took_ms: int) -> None:
        """The round under way has taken so long."""
        self._own_ms.append(took_ms * self._method.directions // self.chosen)

    def choose(self, interval_ms: Mapping[Author, int], active: Iterable[Author]) -> None:
        """Settle how many directions the next round has; ``interval_ms``: of authors between two updates, smoothed."""
        method, own_ms = self._method, self.own_ms
        # Whole rounds: if each fitted into what the others measure in fact, all would measure less and less.
        theirs = [
            interval_ms[author] * method.directions // self._measured[author]
            for author in active
            if author in interval_ms
        ]
        # Times vary: a whole round of all is worth a wait of a quarter.
        if not theirs or own_ms is None or 4 * own_ms <= 5 * median_low(theirs):
            self.chosen = method.directions
        else:
            self.chosen = max(1, median_low(theirs) * method.blocks // own_ms) * method.shares
