"""How many of a round's directions this node measures (SPEC 9.1.6): what it can while others measure all of them.

A machine a tenth as fast as the others measures a tenth of the directions, in each round, and nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from statistics import median_low

from protocol.crypto import Author
from protocol.run import Method


class AffordableDirections:
    """Fewer directions after rounds that took too long, more after one that did not. Times in ms come in as arguments.

    A machine that measures all of them and is disturbed for a moment goes on doing so: one late round says little,
    unless it is very late.

    What a round takes is not in proportion to its directions: much of it may be the same for one and for all. So
    nothing is extrapolated upwards; a node that has room tries a little more.

    Attributes:
        chosen: M, the directions of the round under way.
        took_ms: of the last round that was measured; None before the first.
    """

    def __init__(self, method: Method) -> None:
        self._method = method
        self._measured: dict[Author, int] = {}
        self._is_looked_at = True
        self._was_late = False
        self.took_ms: int | None = None
        self.chosen = method.directions

    def hear(self, author: Author, scalars: Sequence[int]) -> None:
        """The newest update of ``author``: K x D scalars."""
        self._measured[author] = self._method.directions_measured(scalars)

    def keep(self, authors: Container[Author]) -> None:
        """Forget all authors but these."""
        self._measured = {author: count for author, count in self._measured.items() if author in authors}

    def measured(self, took_ms: int) -> None:
        """The round under way has taken so long."""
        self.took_ms, self._is_looked_at = took_ms, False

    def choose(self, interval_ms: Mapping[Author, int], active: Iterable[Author]) -> None:
        """Settle how many directions the next round has; ``interval_ms``: of authors between two updates, smoothed."""
        method = self._method
        # Whole rounds: if each fitted into what the others measure in fact, all would measure less and less.
        theirs = [
            interval_ms[author] * method.directions // self._measured[author]
            for author in active
            if author in interval_ms
        ]
        if not theirs:
            self.chosen = method.directions
        elif self.took_ms is not None and not self._is_looked_at:
            self.chosen = self._fitting(median_low(theirs), self.took_ms) * method.shares
        self._is_looked_at = True

    def _fitting(self, pace_ms: int, took_ms: int) -> int:
        """Blocks of the next round, by what this one took."""
        blocks = self.chosen // self._method.shares
        is_late = 4 * took_ms > 5 * pace_ms  # times vary: a quarter more is no reason
        was_late, self._was_late = self._was_late, is_late
        if is_late and (was_late or took_ms > 4 * pace_ms or blocks < self._method.blocks):
            return max(1, pace_ms * blocks // took_ms)
        if took_ms > pace_ms:
            return blocks
        wanted = pace_ms * blocks // max(1, took_ms)
        return min(self._method.blocks, max(blocks + 1, wanted))
