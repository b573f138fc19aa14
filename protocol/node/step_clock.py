"""The step clock: when a node may start its next step, and which step that is (SPEC 9.1). Time is an argument."""

from collections import deque
from collections.abc import Container, Mapping, Sequence
from statistics import median, median_low

from protocol import limits, timings
from protocol.crypto import Author
from protocol.node.authors_at_work import AuthorsAtWork
from protocol.node.measured_directions import AffordableDirections
from protocol.run import Manifest

_PACES_KEPT = 16


class StepClock:
    """Keeps the node in step with the active authors, and never waits long for any other.

    A wait next to two other authors, without staleness, where the paces so far have a median of 1,000 ms:

        0 ms   step 7 starts                                                   _started
        800    it is measured; step 8 needs the others' step 7                 _ready_since, _due 800 + 2 x 1,000
        820    one of them comes: two of three have it, this node included     _half, _due 800 + 1,000 / 20
        850    the other one has not come: step 8 starts                       820 is a pace
    """

    def __init__(self, manifest: Manifest, own: Author) -> None:
        self._own = own
        self._round_steps = manifest.method.local_steps
        self._ahead = timings.ROUNDS_AHEAD_MAX * manifest.method.local_steps
        self._staleness = manifest.staleness
        self._steps = manifest.steps
        self._paces_ms: deque[int] = deque(maxlen=_PACES_KEPT)
        self._started_ms: int | None = None  # the last step
        self._ready_since_ms: int | None = None  # for the next one
        self._half_ms: int | None = None  # when at least half of the active authors, itself included, were there
        self._due_ms: int | None = None  # when the present wait is over at the latest
        self._alone: tuple[int, int] | None = None  # when, and before which step, it first had nobody at work to follow
        self.next_step = 0
        self.authors = AuthorsAtWork(manifest, own)
        self.affordable = AffordableDirections(manifest.method)

    @property
    def is_finished(self) -> bool:
        return self.next_step >= self._steps

    def hear(self, author: Author, scalars: Sequence[int], now_ms: int) -> None:
        """Note that ``author`` made progress: an update for a higher step than before, with these scalars.

        Do not call it for old steps. An author that signs only those is not at work and would hold back the others.
        This node's own records, which neighbours bring back to it, are not heard: it does not wait for itself.
        """
        if author == self._own:
            return
        self.authors.hear(author, now_ms)
        self.affordable.hear(author, scalars)

    def forget_others(self, authors: Container[Author]) -> None:
        """Forget all authors but these, because nothing is held of the others any more."""
        self.authors.keep(authors)
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

    def try_start(
        self, highest: Mapping[Author, int], now_ms: int, *, has_company: bool = False, until: int = limits.STEPS_MAX
    ) -> int | None:
        """Return the step to start now, or None while the node has to wait. A returned step counts as started.

        ``affordable.chosen`` is then its number of directions. ``has_company``: some neighbour says that it has work;
        ``until``: the first step of which its update would not count.
        """
        # SPEC 9.1.3: a node that has fallen behind the median of the active authors jumps to it.
        self.next_step = max(self.next_step, self.authors.frontier(highest, now_ms))
        if self.is_finished or self.next_step >= until:
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
            self.authors.interval_ms, [each for each in active if highest[each] <= self.next_step + self._ahead]
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
        signing = self.authors.still_signing(highest, now_ms)
        at_work = [step for step in signing if step <= self.next_step + self._ahead]
        if at_work:
            self._alone = None
            return self.next_step > median_low([*at_work, self.next_step]) + self._ahead
        if not has_company:
            return False
        self._alone = self._alone or (now_ms, self.next_step)
        since_ms, step = self._alone
        return self.next_step > step + self._ahead and now_ms - since_ms < timings.STEP_WAIT_MS_MAX
