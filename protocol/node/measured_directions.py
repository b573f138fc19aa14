"""How many of a round's directions this node measures (SPEC 9.1.6): as many as it can while others measure all.

A machine with a tenth of the others' speed measures about a tenth of the directions in each round, and no node has to
wait for it.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from statistics import median_low

from protocol.crypto import Author
from protocol.run import Method


class AffordableDirections:
    """Chooses fewer directions after rounds that took too long, and more after a round that did not.

    A machine that measures all directions keeps doing so after one late round, unless that was very late: the cause
    may be a short disturbance.

    A round's time is not proportional to its directions, since part of it may be fixed. So an estimate in proportion
    never takes a node with room beyond the others' pace; to use all its room, it adds at least one block.

    Attributes:
        chosen: M, the directions of the present round.
        took_ms: time of the last measured round in ms; None before the first.
    """

    def __init__(self, method: Method) -> None:
        self._method = method
        self._measured: dict[Author, int] = {}
        self._is_looked_at = True
        self._was_late = False
        self.took_ms: int | None = None
        self.chosen = method.directions

    def hear(self, author: Author, scalars: Sequence[int]) -> None:
        """Note the newest update of ``author``: its K x D scalars, or the number of rows of a dense message."""
        self._measured[author] = self._method.directions_measured(scalars)

    def keep(self, authors: Container[Author]) -> None:
        self._measured = {author: count for author, count in self._measured.items() if author in authors}

    def measured(self, took_ms: int) -> None:
        """Note how long the present round has taken."""
        self.took_ms, self._is_looked_at = took_ms, False

    def choose(self, interval_ms: Mapping[Author, int], active: Iterable[Author]) -> None:
        """Choose the directions of the next round; ``interval_ms``: each author's smoothed time between two updates."""
        method = self._method
        # Scale each interval to a whole round. Otherwise every node would follow the others' reduced rounds, and all
        # would measure less and less.
        theirs = [
            interval_ms[author] * method.directions // self._measured[author]
            for author in active
            if author in interval_ms
        ]
        if self.took_ms is not None and not self._is_looked_at:
            own = self.took_ms * method.directions // self.chosen  # no other author alone is the median
            self.chosen = self._fitting(median_low([*theirs, own]), self.took_ms) * method.shares
        self._is_looked_at = True

    def _fitting(self, pace_ms: int, took_ms: int) -> int:
        """Return the number of blocks of the next round, given what this one took and what the others take."""
        blocks = self.chosen // self._method.shares
        is_late = 4 * took_ms > 5 * pace_ms  # times vary, so up to a quarter more is not late
        was_late, self._was_late = self._was_late, is_late
        # Shrink when late twice in a row, very late, or already below all blocks; otherwise keep the number or grow.
        if is_late and (was_late or took_ms > 4 * pace_ms or blocks < self._method.blocks):
            return max(1, pace_ms * blocks // took_ms)
        if took_ms > pace_ms:
            return blocks
        wanted = pace_ms * blocks // max(1, took_ms)
        return min(self._method.blocks, max(blocks + 1, wanted))
