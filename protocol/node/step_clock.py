"""The step clock: when a node may start its next step, and which step that is (SPEC 9.1). Time is an argument."""

from collections import deque
from collections.abc import Container, Mapping, Sequence
from statistics import median, median_low

from protocol import limits, timings
from protocol.crypto import Author
from protocol.node.measured_directions import AffordableDirections
from protocol.run import Manifest

_PACES_KEPT = 16
_HEARD_MS = 2 * timings.STEP_WAIT_MS_MAX  # an author silent for longer does not move the median, if most are heard


class StepClock:
    """Keeps the node in step with the active authors, and never waits long for any other."""

    def __init__(self, manifest: Manifest, own: Author) -> None:
        self._own = own
        self._round_steps = manifest.method.local_steps
        self._ahead = timings.ROUNDS_AHEAD_MAX * manifest.method.local_steps
        self._staleness = manifest.staleness
        self._steps = manifest.steps
        self._heard_ms: dict[Author, int] = {}
        self._met_ms: dict[Author, int] = {}  # when an author was heard last, or was found at work at the beginning
        self._interval_ms: dict[Author, int] = {}  # smoothed time between two updates of an author
        self._paces_ms: deque[int] = deque(maxlen=_PACES_KEPT)
        self._ready_since_ms: int | None = None
        self._started_ms: int | None = None
        self._half_ms: int | None = None  # when at least half of the active authors, itself included, were there
        self._due_ms: int | None = None  # when the present wait is over at the latest
        self._alone: tuple[int, int] | None = None  # when, and before which step, it first had nobody at work to follow
        self.next_step = 0
        self.affordable = AffordableDirections(manifest.method)

    @property
    def is_finished(self) -> bool:
        """Return whether the run has no step left for this node."""
        return self.next_step >= self._steps

    def hear(self, author: Author, scalars: Sequence[int], now_ms: int) -> None:
        """Note that ``author`` made progress: an update for a higher step than before, with these scalars.

        Do not call it for old steps. An author that signs only those is not at work and would hold back the others.
        This node's own records, which neighbours bring back to it, are not heard: it does not wait for itself.
        """
        if author == self._own:
            return
        if author in self._heard_ms:
            interval_ms = now_ms - self._heard_ms[author]
            self._interval_ms[author] = (3 * self._interval_ms.get(author, interval_ms) + interval_ms) // 4
        self._heard_ms[author] = self._met_ms[author] = now_ms
        self.affordable.hear(author, scalars)

    def meet(self, highest: Mapping[Author, int], neighbours: int, now_ms: int) -> None:
        """Note who was at work before this node came; else the first author that is heard would be the median.

        ``neighbours``: lower median of the neighbours' frontiers, from which these authors are at most 64 rounds away.
        """
        least = neighbours - limits.STEPS_AHEAD_MAX * self._round_steps
        self._met_ms |= {author: now_ms for author, step in highest.items() if author != self._own and step >= least}

    def forget_others(self, authors: Container[Author]) -> None:
        """Forget all authors but these, because nothing is held of the others any more."""
        self._heard_ms = {author: heard_ms for author, heard_ms in self._heard_ms.items() if author in authors}
        self._met_ms = {author: met_ms for author, met_ms in self._met_ms.items() if author in authors}
        self._interval_ms = {author: ms for author, ms in self._interval_ms.items() if author in authors}
        self.affordable.keep(authors)

    def resume_after(self, step: int) -> None:
        """Use only steps after ``step`` from now on; -1 changes nothing."""
        self.next_step = max(self.next_step, step + self._round_steps if step >= 0 else 0)

    def step_finished(self, now_ms: int, *, is_measured: bool, took_ms: int | None = None) -> None:
        """Go on to the next round after ``next_step`` was measured, in ``took_ms`` if known, or skipped, or lost."""
        if is_measured and self._started_ms is not None:
            self.affordable.measured(now_ms - self._started_ms if took_ms is None else took_ms)
        self.next_step += self._round_steps
        self._ready_since_ms = now_ms

    def frontier(self, highest: Mapping[Author, int], now_ms: int) -> int:
        """Return the round of the lower median of the highest steps of the other authors who are at work.

        Without any, of all others, or 0. By the lower median, the one of two others that runs ahead pulls nobody along.
        """
        return self._round_of(self._recent_steps(highest, now_ms) or self._other_steps(highest) or [0])

    def horizon(self, highest: Mapping[Author, int], now_ms: int, neighbours: int, asked_step: int | None) -> int:
        """Return the last step acceptable now (SPEC 7.3.3 gives the reasons).

        ``neighbours``: lower median of the neighbours' frontiers. It bounds pushed records, so that one liar does not
        move the bound. ``asked_step``: frontier of the one neighbour that a session asks, None for pushed records. It
        replaces ``neighbours``, or the median of those just heard does; of none, the highest step of any author.
        """
        heard = self._heard_steps(highest, now_ms)  # each message asks: look at all authors only if nobody was heard
        if asked_step is not None:
            neighbours = max(asked_step, self._round_of(heard or [max(self._other_steps(highest), default=-1)]))
        ahead = limits.STEPS_AHEAD_MAX * self._round_steps
        return max(self._round_of(heard or self._other_steps(highest) or [0]), self.next_step, neighbours) + ahead

    def is_run_over(self, highest: Mapping[Author, int], now_ms: int) -> bool:
        """Return whether most authors at work, or any once all are silent, did the last round; for a relay."""
        steps = self._recent_steps(highest, now_ms) or [max(self._other_steps(highest), default=-1)]
        return self._round_of(steps) >= self._steps - self._round_steps

    def awaited(self, highest: Mapping[Author, int], now_ms: int) -> list[Author]:
        """Return the authors heard of within END_INTERVALS of their intervals whose last round is not held."""
        last = self._steps - self._round_steps
        # An author heard of once has no interval, and counts as the slowest.
        slowest_ms = max(self._interval_ms.values(), default=timings.STEP_WAIT_MS_MAX)
        awaited: list[Author] = []
        for author, heard_ms in self._heard_ms.items():
            wanted_ms = timings.END_INTERVALS * self._interval_ms.get(author, slowest_ms)
            patience_ms = max(timings.STEP_WAIT_MS_START, min(timings.END_PATIENCE_MS_MAX, wanted_ms))
            if highest.get(author, last) < last and now_ms - heard_ms <= patience_ms:
                awaited.append(author)
        return sorted(awaited)

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
            wanted_ms = timings.AT_WORK_INTERVALS * self._interval_ms.get(author, 0)
            if now_ms - met_ms <= max(timings.MET_MS_MIN, min(timings.MET_MS_MAX, wanted_ms)) and author in highest:
                met.append(highest[author])
        return met if heard and 2 * len(heard) <= len(met) else heard

    def _heard_steps(self, highest: Mapping[Author, int], now_ms: int) -> list[int]:
        """Return the highest steps of the other authors heard of within _HEARD_MS."""
        heard = (author for author, heard_ms in self._heard_ms.items() if now_ms - heard_ms <= _HEARD_MS)
        return [highest[author] for author in heard if author in highest]

    def try_start(self, highest: Mapping[Author, int], now_ms: int, *, has_company: bool = False) -> int | None:
        """Return the step to start now, or None while the node has to wait. A returned step counts as started.

        ``affordable.chosen`` is then its number of directions. ``has_company``: some neighbour says that it has work.
        """
        # SPEC 9.1.3: a node that has fallen behind the median of the active authors jumps to it.
        self.next_step = max(self.next_step, self.frontier(highest, now_ms))
        if self.is_finished:
            return None
        self._ready_since_ms = now_ms if self._ready_since_ms is None else self._ready_since_ms
        # SPEC 9.1.1: who is active, and how many of them lack step t - K (1 + staleness).
        needed = self.next_step - self._round_steps * (1 + self._staleness)
        oldest_active = needed - self._round_steps * timings.ACTIVE_WINDOW_STEPS
        active = [author for author, step in highest.items() if author != self._own and step >= oldest_active]
        behind = sum(highest[author] < needed for author in active)
        is_half_there = 2 * behind <= len(active) + 1  # + 1: this node itself, which is there
        if self._half_ms is None and is_half_there:
            self._half_ms = now_ms
        # SPEC 9.1.2: wait long for half of the authors, a twentieth of a step for the others. Paces are measured up to
        # half of the authors, so one that always answers just before a limit cannot raise it.
        pace_ms = median(self._paces_ms) if self._paces_ms else timings.STEP_WAIT_MS_START
        wait_ms = int(pace_ms / timings.STEP_GRACE_PART) if is_half_there else self.wait_limit_ms()
        self._due_ms = self._ready_since_ms + min(wait_ms, timings.STEP_WAIT_MS_MAX)
        if behind and now_ms < self._due_ms:
            return None
        self._due_ms = None
        if self._is_far_ahead(highest, now_ms, has_company):
            return None
        if self._half_ms is not None and self._started_ms is not None:
            self._paces_ms.append(self._half_ms - self._started_ms)
        self._started_ms, self._half_ms = now_ms, None
        self.affordable.choose(
            self._interval_ms, [each for each in active if highest[each] <= self.next_step + self._ahead]
        )
        return self.next_step

    def rest_ms(self, now_ms: int) -> int:
        """Return how long until the present wait is over at the latest, at most one interval of the flood."""
        left_ms = 0 if self._due_ms is None else self._due_ms - now_ms  # below 0: it may not sign now, if ever again
        return min(timings.FLUSH_INTERVAL_MS, left_ms) if left_ms > 0 else timings.FLUSH_INTERVAL_MS

    def wait_limit_ms(self) -> int:
        """Return the longest wait at the end of a step while fewer than half of the active authors are there."""
        if not self._paces_ms:
            return timings.STEP_WAIT_MS_START
        wanted = int(timings.STEP_WAIT_FACTOR * median(self._paces_ms))
        return max(timings.STEP_WAIT_MS_MIN, min(timings.STEP_WAIT_MS_MAX, wanted))

    def _is_far_ahead(self, highest: Mapping[Author, int], now_ms: int, has_company: bool) -> bool:
        """Return whether this node would run away from a slower majority that is at work (SPEC 9.1.4).

        An author is at work while it has been silent for less than AT_WORK_INTERVALS of its usual intervals, unless it
        signs far ahead. While none is, a neighbour with work may be about to send its first update: it waits once.
        """
        at_work: list[int] = []
        for author, heard_ms in self._heard_ms.items():
            patience_ms = timings.STEP_WAIT_MS_MAX
            if author in self._interval_ms:
                wanted_ms = timings.AT_WORK_INTERVALS * self._interval_ms[author]
                patience_ms = max(timings.STEP_WAIT_MS_START, min(_HEARD_MS, wanted_ms))
            if author in highest and now_ms - heard_ms <= patience_ms:
                at_work.append(highest[author])
        at_work = [step for step in at_work if step <= self.next_step + self._ahead]
        if at_work:
            self._alone = None
            return self.next_step > median_low([*at_work, self.next_step]) + self._ahead
        if not has_company:
            return False
        self._alone = self._alone or (now_ms, self.next_step)
        since_ms, step = self._alone
        return self.next_step > step + self._ahead and now_ms - since_ms < timings.STEP_WAIT_MS_MAX
