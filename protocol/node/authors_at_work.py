"""Which other authors are at work, and how far the run is by what they sign (SPEC 7.3.3, 9.1). Time is an argument.

``highest`` is everywhere the highest step of each author whom the owner has not excluded, this node's own included;
for the horizon, which bounds what may come of the others, too, it is that of all authors.

Which other authors count, by how long ago they were heard; i: the usual interval between two updates of an author.

    question         who counts                                                                   if nobody was heard
    frontier         *heard* within 60 s; the *met*, if at most half as many were heard           all
    is_run_over      the same                                                                     the furthest
    horizon          *heard* within 60 s                                                          all
    still_signing    heard within 8 i, at least 5 s, at most 60 s; 30 s while i is not known      nobody
    awaited          heard within 4 i, at least 5 s, at most 15 min; the slowest's i if unknown   nobody

*Met*: heard, or found at work when this node came, within 8 i, at least 10 min, at most 60 min.
"""

from collections.abc import Container, Mapping
from statistics import median_low

from protocol import limits, timings
from protocol.crypto import Author
from protocol.run import Manifest

_HEARD_MS = 2 * timings.STEP_WAIT_MS_MAX  # an author silent for longer does not move the median, if most are heard


class AuthorsAtWork:
    """Remembers when each other author was heard, and at what intervals.

    Attributes:
        interval_ms: smoothed time between two updates of an author, of those heard more than once.
    """

    def __init__(self, manifest: Manifest, own: Author) -> None:
        self._own = own
        self._round_steps = manifest.method.local_steps
        self._steps = manifest.steps
        self._heard_ms: dict[Author, int] = {}
        self._met_ms: dict[Author, int] = {}  # when an author was heard last, or was found at work at the beginning
        self.interval_ms: dict[Author, int] = {}

    def hear(self, author: Author, now_ms: int) -> None:
        """Note that ``author``, another than this node, signed a higher step than before."""
        if author in self._heard_ms:
            interval_ms = now_ms - self._heard_ms[author]
            self.interval_ms[author] = (3 * self.interval_ms.get(author, interval_ms) + interval_ms) // 4
        self._heard_ms[author] = self._met_ms[author] = now_ms

    def meet(self, highest: Mapping[Author, int], neighbours: int, now_ms: int) -> None:
        """Note who was at work before this node came; else the first author that is heard would be the median.

        ``neighbours``: lower median of the neighbours' frontiers, from which these authors are at most 64 rounds away.
        """
        least = neighbours - limits.STEPS_AHEAD_MAX * self._round_steps
        self._met_ms |= {author: now_ms for author, step in highest.items() if author != self._own and step >= least}

    def keep(self, authors: Container[Author]) -> None:
        self._heard_ms = {author: heard_ms for author, heard_ms in self._heard_ms.items() if author in authors}
        self._met_ms = {author: met_ms for author, met_ms in self._met_ms.items() if author in authors}
        self.interval_ms = {author: ms for author, ms in self.interval_ms.items() if author in authors}

    def frontier(self, highest: Mapping[Author, int], now_ms: int) -> int:
        """Return the round of the lower median of the highest steps of the other authors who are at work.

        Without any, of all others, or 0. By the lower median, the one of two others that runs ahead pulls nobody along.
        """
        return self._round_of(self._recent_steps(highest, now_ms) or self._other_steps(highest) or [0])

    def horizon(
        self, highest: Mapping[Author, int], now_ms: int, *, own_step: int, neighbours: int, asked_step: int | None
    ) -> int:
        """Return the last step acceptable now (SPEC 7.3.3 gives the reasons).

        ``own_step``: the next one of this node. ``neighbours``: lower median of the neighbours' frontiers. It bounds
        pushed records, so that one liar does not move the bound. ``asked_step``: frontier of the one neighbour that a
        session asks, None for pushed records. It replaces ``neighbours``, or the median of those just heard does; of
        none, the highest step of any author.
        """
        heard = self._heard_steps(highest, now_ms)  # each message asks: look at all authors only if nobody was heard
        if asked_step is not None:
            neighbours = max(asked_step, self._round_of(heard or [max(self._other_steps(highest), default=-1)]))
        ahead = limits.STEPS_AHEAD_MAX * self._round_steps
        return max(self._round_of(heard or self._other_steps(highest) or [0]), own_step, neighbours) + ahead

    def is_run_over(self, highest: Mapping[Author, int], now_ms: int) -> bool:
        """Return whether most authors at work, or any once all are silent, did the last round; for a relay."""
        steps = self._recent_steps(highest, now_ms) or [max(self._other_steps(highest), default=-1)]
        return self._round_of(steps) >= self._steps - self._round_steps

    def awaited(self, highest: Mapping[Author, int], now_ms: int) -> list[Author]:
        """Return the authors heard of within END_INTERVALS of their intervals whose last round is not held."""
        last = self._steps - self._round_steps
        # An author heard of once has no interval, and counts as the slowest.
        slowest_ms = max(self.interval_ms.values(), default=timings.STEP_WAIT_MS_MAX)
        awaited: list[Author] = []
        for author, heard_ms in self._heard_ms.items():
            wanted_ms = timings.END_INTERVALS * self.interval_ms.get(author, slowest_ms)
            patience_ms = max(timings.STEP_WAIT_MS_START, min(timings.END_PATIENCE_MS_MAX, wanted_ms))
            if highest.get(author, last) < last and now_ms - heard_ms <= patience_ms:
                awaited.append(author)
        return sorted(awaited)

    def still_signing(self, highest: Mapping[Author, int], now_ms: int) -> list[int]:
        """Return the highest steps of those silent for less than AT_WORK_INTERVALS of their usual intervals."""
        steps: list[int] = []
        for author, heard_ms in self._heard_ms.items():
            patience_ms = timings.STEP_WAIT_MS_MAX
            if author in self.interval_ms:
                wanted_ms = timings.AT_WORK_INTERVALS * self.interval_ms[author]
                patience_ms = max(timings.STEP_WAIT_MS_START, min(_HEARD_MS, wanted_ms))
            if author in highest and now_ms - heard_ms <= patience_ms:
                steps.append(highest[author])
        return steps

    def _round_of(self, steps: list[int]) -> int:
        """Return the first step of the round in which the lower median of ``steps`` lies."""
        middle = median_low(steps)
        return middle - middle % self._round_steps

    def _other_steps(self, highest: Mapping[Author, int]) -> list[int]:
        return [step for author, step in highest.items() if author != self._own]

    def _recent_steps(self, highest: Mapping[Author, int], now_ms: int) -> list[int]:
        """Return the highest steps of the other authors heard within _HEARD_MS; of all met, if some were, but not most.

        One who goes on while the others rest, or need minutes for a step, must not take them along.
        """
        heard, met = self._heard_steps(highest, now_ms), []
        for author, met_ms in self._met_ms.items():
            wanted_ms = timings.AT_WORK_INTERVALS * self.interval_ms.get(author, 0)
            if now_ms - met_ms <= max(timings.MET_MS_MIN, min(timings.MET_MS_MAX, wanted_ms)) and author in highest:
                met.append(highest[author])
        return met if heard and 2 * len(heard) <= len(met) else heard

    def _heard_steps(self, highest: Mapping[Author, int], now_ms: int) -> list[int]:
        """Return the highest steps of the other authors heard of within _HEARD_MS."""
        return [highest[each] for each, ms in self._heard_ms.items() if each in highest and now_ms - ms <= _HEARD_MS]
