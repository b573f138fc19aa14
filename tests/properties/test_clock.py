"""The step clock under any progress of others and any passing of time: the promises of SPEC 9.1."""

from __future__ import annotations

from statistics import median, median_low

from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from protocol import timings
from protocol.crypto.hashing import Author
from protocol.node.step_clock import StepClock
from protocol.run.manifest import checked
from tests.support.manifests import manifest_data, small_manifest

OWN, *OTHERS = (Author(bytes([number]) * 32) for number in range(5))
STEPS = 400
SURELY_AT_WORK_MS = timings.STEP_WAIT_MS_START  # nobody's patience is shorter
PERHAPS_AT_WORK_MS = 2 * timings.STEP_WAIT_MS_MAX  # and nobody's longer
PAUSES_MS = st.sampled_from((0, 1, 50, 199, 200, 1_000, 4_999, 5_000, 29_999, 30_000, 60_000, 61_000))


class ClockMachine(RuleBasedStateMachine):
    """A clock, four authors who go on or fall silent, and time that passes; steps may also be lost or resumed."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = StepClock(small_manifest(steps=STEPS), OWN)
        self.round_steps, self.staleness = 1, 1
        self.now_ms = 0
        self.highest: dict[Author, int] = {}
        self.heard_ms: dict[Author, int] = {}
        self.interval_ms: dict[Author, int] = {}
        self.never_again = -1  # highest step that was started or must not be used
        self.running: int | None = None
        self.asked_ms: int | None = None  # since when the node could start, as far as its own work goes

    @initialize(round_steps=st.sampled_from((1, 4)), staleness=st.sampled_from((0, 1, 3)))
    def begin(self, round_steps: int, staleness: int) -> None:
        data = {**manifest_data(local_steps=round_steps, epoch_steps=16), "steps": STEPS, "staleness": staleness}
        self.clock = StepClock(checked(data), OWN)
        self.round_steps, self.staleness = round_steps, staleness

    # --- what happens

    @rule(pause_ms=PAUSES_MS)
    def time_passes(self, pause_ms: int) -> None:
        self.now_ms += pause_ms

    @precondition(lambda self: self.running is None)
    @rule(rest_ms=st.sampled_from((540_000, 600_000)))
    def nobody_works(self, rest_ms: int) -> None:
        self.now_ms += rest_ms

    @rule(author=st.sampled_from(OTHERS), rounds=st.sampled_from((1, 1, 1, 2, 10, 60)), is_heard=st.booleans())
    def author_goes_on(self, author: Author, rounds: int, is_heard: bool) -> None:
        """Not heard: its record came by catching up."""
        last = STEPS - self.round_steps
        step = min(last, self.highest.get(author, -self.round_steps) + rounds * self.round_steps)
        self.highest[author] = step
        if is_heard:
            self.clock.hear(author, (5,), self.now_ms)
            if author in self.heard_ms:
                last_ms = self.now_ms - self.heard_ms[author]
                self.interval_ms[author] = (3 * self.interval_ms.get(author, last_ms) + last_ms) // 4
            self.heard_ms[author] = self.now_ms

    @rule(step=st.integers(0, STEPS // 8))
    def own_record_appears(self, step: int) -> None:
        """From a backup or a second machine with this key."""
        own = step - step % self.round_steps
        self.highest[OWN] = max(own, self.highest.get(OWN, -1))
        self.clock.resume_after(self.highest[OWN])
        self.never_again = max(self.never_again, self.highest[OWN])

    @precondition(lambda self: self.running is not None)
    @rule(is_published=st.booleans())
    def step_ends(self, is_published: bool) -> None:
        assert self.running is not None
        self.clock.step_finished(self.now_ms, is_measured=True)
        if is_published:
            self.highest[OWN] = max(self.running, self.highest.get(OWN, -1))
        self.running, self.asked_ms = None, self.now_ms

    @precondition(lambda self: self.running is None)
    @rule()
    def try_start(self) -> None:
        before = self.clock.next_step
        step = self.clock.try_start(self.highest, self.now_ms)
        wanted = max(before, self._frontier())
        assert self.clock.next_step == wanted, "it jumps to the frontier, and nowhere else"
        if wanted >= STEPS:
            assert step is None and self.clock.is_finished
            return
        if self.asked_ms is None:
            self.asked_ms = self.now_ms
        if step is None:
            self._check_wait(wanted)
        else:
            assert step == wanted
            self._check_start(step)

    @precondition(lambda self: self.running is None)
    @rule(rounds=st.integers(1, 8))
    def nobody_answers(self, rounds: int) -> None:
        """Step after step only because time runs out."""
        for _ in range(rounds):
            self.try_start()
            self.now_ms += timings.STEP_WAIT_MS_MAX
            if self.running is None:
                self.try_start()
            if self.running is not None:
                self.step_ends(True)

    # --- the promises

    def _frontier(self) -> int:
        """SPEC 9.1.3: the lower median of the others heard of within 60 s, of all others if none was.

        If most of those heard of within ten minutes, or eight intervals, were silent for a minute: of all of these.
        """
        others = {author: step for author, step in self.highest.items() if author != OWN}
        silent_ms = {author: self.now_ms - heard_ms for author, heard_ms in self.heard_ms.items()}
        heard = [others[author] for author, each_ms in silent_ms.items() if each_ms <= 60_000]
        rests_ms = {author: min(3_600_000, 8 * each_ms) for author, each_ms in self.interval_ms.items()}
        met = [others[author] for author, each in silent_ms.items() if each <= max(600_000, rests_ms.get(author, 0))]
        if heard and 2 * len(heard) <= len(met):
            heard = met
        chosen = sorted(heard or others.values())
        middle = chosen[(len(chosen) - 1) // 2] if chosen else 0
        return middle - middle % self.round_steps

    def _check_start(self, step: int) -> None:
        assert step > self.never_again, "a step was used twice"
        assert step % self.round_steps == 0 and 0 <= step < STEPS
        surely, perhaps = self._at_work(SURELY_AT_WORK_MS), self._at_work(PERHAPS_AT_WORK_MS)
        ahead = timings.ROUNDS_AHEAD_MAX * self.round_steps
        assert not surely or step <= max(perhaps) + ahead
        if surely and surely == perhaps and surely[-1] <= step + ahead:  # else some sign ahead of time
            assert step <= median_low([*surely, step]) + ahead
        self.never_again, self.running = step, step

    def _check_wait(self, step: int) -> None:
        """Only for an active author who is behind, and not beyond the limit; or to stay near the others."""
        assert self.asked_ms is not None
        limit_ms = self._grace_ms() if self._is_half_there(step) else self.clock.wait_limit_ms()
        is_in_time = self.now_ms - self.asked_ms < limit_ms
        perhaps = self._at_work(PERHAPS_AT_WORK_MS)
        is_ahead = bool(perhaps) and step > min(perhaps) + timings.ROUNDS_AHEAD_MAX * self.round_steps
        assert is_ahead or (is_in_time and self._is_somebody_behind(step))

    def _is_somebody_behind(self, step: int) -> bool:
        return self._behind(step) > 0

    def _grace_ms(self) -> int:
        """SPEC 9.1.2: a twentieth of the pace, of which a rest is a part."""
        pace_ms = median(self.clock._paces_ms or [timings.STEP_WAIT_MS_START])
        return int(min(pace_ms / timings.STEP_GRACE_PART, timings.STEP_WAIT_MS_MAX))

    def _is_half_there(self, step: int) -> bool:
        """Of the active authors, this node among them."""
        needed = step - self.round_steps * (1 + self.staleness)
        there = sum(held >= needed for author, held in self.highest.items() if author != OWN) + 1
        return self._behind(step) <= there

    def _behind(self, step: int) -> int:
        needed = step - self.round_steps * (1 + self.staleness)
        others = [held for author, held in self.highest.items() if author != OWN]
        return sum(needed - 2 * self.round_steps <= held < needed for held in others)

    def _at_work(self, silent_ms: int) -> list[int]:
        heard = sorted(self.heard_ms.items())
        return sorted(self.highest[author] for author, at_ms in heard if self.now_ms - at_ms <= silent_ms)

    @invariant()
    def limit_is_within_its_bounds(self) -> None:
        assert timings.STEP_WAIT_MS_MIN <= self.clock.wait_limit_ms() <= timings.STEP_WAIT_MS_MAX

    @invariant()
    def next_step_is_a_round_beyond_all_that_were_used(self) -> None:
        assert self.clock.next_step % self.round_steps == 0
        assert self.clock.next_step > self.never_again or self.clock.next_step == self.running

    def teardown(self) -> None:
        """All others have left: after the longest patience it goes on alone, to the end."""
        if self.running is not None:
            self.step_ends(True)
        self.now_ms += PERHAPS_AT_WORK_MS + 1
        for _ in range(4):
            if self.clock.is_finished:
                return
            self.asked_ms = None
            if self.clock.try_start(self.highest, self.now_ms) is None:
                self.now_ms += timings.STEP_WAIT_MS_MAX
                assert self.clock.try_start(self.highest, self.now_ms) is not None or self.clock.is_finished
            self.clock.step_finished(self.now_ms, is_measured=True)


def test_clock__any_progress_of_others_and_any_pauses__keeps_its_promises() -> None:
    run_state_machine_as_test(ClockMachine, settings=settings(max_examples=150, stateful_step_count=40))
