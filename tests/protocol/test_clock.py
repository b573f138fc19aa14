"""The step clock: whom it waits for and how long, when it jumps, when it is done."""

from __future__ import annotations

import pytest

from protocol import timings
from protocol.crypto.hashing import Author
from protocol.node.step_clock import StepClock
from protocol.run.manifest import checked
from tests.support.manifests import manifest_data, small_manifest

OWN, A, B, C = (Author(bytes([number]) * 32) for number in range(4))
ONE = (5,)  # scalars of an update


def clock(*, staleness: int = 1, local_steps: int = 1, next_step: int = 0) -> StepClock:
    data = manifest_data(local_steps=local_steps)
    made = StepClock(checked({**data, "staleness": staleness}), OWN)
    made.next_step = next_step
    return made


def test_clock__alone__starts_at_once_and_goes_on() -> None:
    alone = clock()
    for step in range(40):
        assert alone.try_start({OWN: step - 1}, step * 100) == step
        alone.step_finished(step * 100 + 50, is_measured=True)
    assert alone.is_finished and alone.try_start({OWN: 39}, 9_999) is None


@pytest.mark.parametrize(
    ("staleness", "theirs", "is_waiting"),
    [
        (0, 9, False),  # needs step 9 of every active author
        (0, 8, True),
        (0, 7, True),
        (0, 6, False),  # more than two rounds behind what is needed: not active
        (1, 8, False),
        (1, 7, True),
        (1, 6, True),
        (1, 5, False),
        (3, 6, False),
        (3, 5, True),
        (64, 0, False),
    ],
)
def test_clock__other_author_behind__is_waited_for_while_it_is_active(
    staleness: int, theirs: int, is_waiting: bool
) -> None:
    waiting = clock(staleness=staleness, next_step=10)
    assert waiting.try_start({OWN: 9, A: theirs}, 0) == (None if is_waiting else 10)


@pytest.mark.parametrize(("theirs", "is_waiting"), [(8, False), (4, True), (0, True)])
def test_clock__rounds_of_four_steps__counts_in_rounds(theirs: int, is_waiting: bool) -> None:
    waiting = clock(local_steps=4, next_step=16)
    assert waiting.try_start({A: theirs}, 0) == (None if is_waiting else 16)
    if not is_waiting:
        waiting.step_finished(1, is_measured=True)
        assert waiting.next_step == 20


def test_clock__timeline_of_its_docstring__is_what_happens() -> None:
    timed = clock(staleness=0, next_step=7)
    timed._paces_ms.append(1_000)
    assert timed.try_start({OWN: 6, A: 6, B: 6}, 0) == 7
    timed.step_finished(800, is_measured=True)
    nobody, one = {OWN: 7, A: 6, B: 6}, {OWN: 7, A: 7, B: 6}
    assert (timed.try_start(nobody, 800), timed._due_ms, timed._half_ms) == (None, 2_800, None)
    assert (timed.try_start(one, 820), timed._due_ms, timed._half_ms) == (None, 850, 820)
    assert timed.try_start(one, 849) is None
    assert timed.try_start(one, 850) == 8
    assert [*timed._paces_ms] == [1_000, 820]


def test_clock__most_active_authors_never_answer__waits_no_longer_than_the_limit() -> None:
    waiting, silent = clock(next_step=10), {A: 7, B: 7}
    assert waiting.wait_limit_ms() == timings.STEP_WAIT_MS_START
    assert waiting.try_start(silent, 1_000) is None
    assert waiting.try_start(silent, 1_000 + timings.STEP_WAIT_MS_START - 1) is None
    assert waiting.try_start(silent, 1_000 + timings.STEP_WAIT_MS_START) == 10


@pytest.mark.parametrize("others", [{A: 7}, {A: 7, B: 8}, {A: 7, B: 7, C: 8}])
def test_clock__half_of_the_active_authors_are_there__waits_a_twentieth_of_a_step_for_the_others(
    others: dict[Author, int],
) -> None:
    waiting = clock(next_step=10)
    grace_ms = timings.STEP_WAIT_MS_START // timings.STEP_GRACE_PART
    assert waiting.try_start(others, 1_000) is None
    assert waiting.rest_ms(1_000) == timings.FLUSH_INTERVAL_MS and waiting.rest_ms(1_000 + grace_ms - 7) == 7
    assert waiting.try_start(others, 1_000 + grace_ms - 1) is None
    assert waiting.try_start(others, 1_000 + grace_ms) == 10
    assert waiting.rest_ms(1_000 + grace_ms) == timings.FLUSH_INTERVAL_MS


@pytest.mark.parametrize("others", [1, 2, 5])
def test_clock__one_author_is_late_in_every_round__costs_the_rest_a_twentieth(others: int) -> None:
    """An attack once: a single key that stayed two rounds behind made every step three times as long, for all."""
    honest, now_ms = long_run_clock(), 0
    honest_authors = [Author(bytes([number]) * 32) for number in range(10, 10 + others - 1)]
    for step in range(100):
        highest = {**dict.fromkeys(honest_authors, step - 1), OWN: step - 1, A: step - 3}
        while honest.try_start(highest, now_ms) is None:
            now_ms += 1
        now_ms += 100
        honest.step_finished(now_ms, is_measured=True)
    assert now_ms <= 1.05 * 100 * 100 + 2 * timings.STEP_WAIT_MS_START // timings.STEP_GRACE_PART


def test_clock__not_asked_any_more_after_a_wait__takes_no_turn_after_turn() -> None:
    """A bug once: a node that was excluded while it waited for others took a whole core until the run's end."""
    excluded = clock(next_step=10)
    assert excluded.try_start({A: 7, B: 7}, 1_000) is None
    over_ms = 1_000 + timings.STEP_WAIT_MS_START
    assert [excluded.rest_ms(at) for at in (over_ms - 1, over_ms, over_ms + 1)] == [1, *[timings.FLUSH_INTERVAL_MS] * 2]


def test_clock__rest_of_hours_in_its_first_steps__waits_no_longer_than_the_limit_for_the_slower_half() -> None:
    """A bug once: the rest was the pace, and a twentieth of five hours is a quarter of one."""
    rested = clock(staleness=0)
    assert rested.try_start({}, 0) == 0
    rested.step_finished(18_000_000, is_measured=True)
    assert rested.try_start({A: 0}, 18_000_000) == 1
    rested.step_finished(18_001_000, is_measured=True)
    others = {A: 1, B: 0}
    assert rested.try_start(others, 18_001_000 + timings.STEP_WAIT_MS_MAX - 1) is None
    assert rested.try_start(others, 18_001_000 + timings.STEP_WAIT_MS_MAX) == 2


@pytest.mark.parametrize(("pace_ms", "limit_ms"), [(10, 200), (300, 600), (50_000, 30_000)])
def test_wait_limit__after_steps_of_one_pace__is_twice_that_within_bounds(pace_ms: int, limit_ms: int) -> None:
    paced = clock()
    for step in range(20):
        paced.try_start({}, step * pace_ms)
        paced.step_finished(step * pace_ms + pace_ms // 2, is_measured=True)
    assert paced.wait_limit_ms() == limit_ms


def test_wait_limit__steps_that_ended_by_the_limit__do_not_raise_it() -> None:
    paced = clock()
    now_ms = 0
    for step in range(10):
        assert paced.try_start({}, now_ms) == step
        paced.step_finished(now_ms + 50, is_measured=True)
        now_ms += 300
    before_ms = paced.wait_limit_ms()
    for step in range(10, 13):
        laggards = {A: step - 3, B: step - 3}
        assert paced.try_start(laggards, now_ms) is None
        now_ms += before_ms
        assert paced.try_start(laggards, now_ms) == step
        paced.step_finished(now_ms + 50, is_measured=True)
        now_ms += 50
    assert paced.wait_limit_ms() == before_ms == 600


def test_wait_limit__one_author_answers_just_before_it__is_not_raised() -> None:
    """A bug once: pace was the time until the last author had answered, so that one of six could make every wait up to
    30 s long by always answering at nine tenths of the limit."""
    paced, now_ms = clock(staleness=0), 0
    assert paced.try_start({}, now_ms) == 0
    for step in range(1, 30):
        paced.step_finished(now_ms + 100, is_measured=True)
        now_ms += 100
        others = {A: step - 1, B: step - 1, C: step - 2}
        assert paced.try_start(others, now_ms) is None
        now_ms += paced.wait_limit_ms() * 9 // 10
        assert paced.try_start({**others, C: step - 1}, now_ms) == step
    assert paced.wait_limit_ms() == timings.STEP_WAIT_MS_MIN


def test_clock__behind_the_active_authors__jumps_to_their_lower_median() -> None:
    behind = clock()
    for author in (A, B, C):
        behind.hear(author, ONE, 0)
    assert behind.try_start({A: 10, B: 20, C: 30}, 0) == 20


def test_clock__one_of_two_others_runs_ahead__does_not_drag_this_node_along() -> None:
    """The mean of two would let a single cheat pull a network of three to the end of the run."""
    honest = clock(next_step=10)
    honest.hear(A, ONE, 0)
    honest.hear(B, ONE, 0)
    assert honest.authors.frontier({OWN: 9, A: 9, B: 39}, 0) == 9
    assert honest.try_start({OWN: 9, A: 9, B: 39}, 0) == 10


def test_frontier__authors_silent_for_long__do_not_count_while_others_are_heard() -> None:
    listening = clock()
    listening.hear(A, ONE, 100_000)
    assert listening.authors.frontier({A: 30, B: 3, C: 3}, 100_000) == 30
    assert listening.authors.frontier({A: 30, B: 3, C: 3}, 100_000 + 60_000) == 30
    assert listening.authors.frontier({A: 30, B: 3, C: 3}, 100_001 + 60_000) == 3  # nobody was heard: all count


def test_frontier__one_goes_on_while_the_others_rest__takes_nobody_along_for_ten_minutes() -> None:
    """A fault once: one key ended a run for all whose authors were silent for 61 s."""
    resting = clock()
    for author in (A, B, C):
        resting.hear(author, ONE, 0)
    resting.hear(C, ONE, 61_000)
    highest = {A: 9, B: 9, C: 39}
    assert resting.authors.frontier(highest, 61_000) == 9
    resting.hear(C, ONE, 599_000)
    assert resting.authors.frontier(highest, timings.MET_MS_MIN) == 9
    assert resting.authors.frontier(highest, timings.MET_MS_MIN + 1) == 39


def test_frontier__newcomer_hears_one_author_first__the_others_that_it_met_count() -> None:
    new = clock()
    highest = {A: 9, B: 9, C: 39}
    new.hear(C, ONE, 0)
    assert new.authors.frontier(highest, 0) == 39
    new.authors.meet(highest, 9, 0)
    assert new.authors.frontier(highest, 0) == 9


def test_frontier__between_rounds__is_rounded_down_to_one() -> None:
    assert clock(local_steps=4).authors.frontier({A: 8}, 0) == 8
    assert clock(local_steps=4).authors.frontier({A: 11}, 0) == 8
    assert clock().authors.frontier({}, 0) == clock().authors.frontier({OWN: 30}, 0) == 0


@pytest.mark.parametrize(("step", "expected"), [(-1, 0), (0, 2), (6, 8), (38, 40)])
def test_resume_after__step_that_may_be_signed__goes_on_at_the_next_round(step: int, expected: int) -> None:
    resumed = clock(local_steps=2)
    resumed.resume_after(step)
    assert resumed.next_step == expected
    resumed.resume_after(-1)
    assert resumed.next_step == expected


def test_clock__last_round__is_started_once_and_then_finished() -> None:
    last = clock(local_steps=2)
    last.resume_after(36)
    assert last.try_start({A: 38}, 0) == 38
    last.step_finished(1, is_measured=True)
    assert last.try_start({A: 38}, 2) is None
    assert last.is_finished


def test_run_is_over__most_of_those_heard_of_have_done_the_last_round__whatever_the_silent_and_the_own_did() -> None:
    watching = clock(local_steps=2)
    watching.hear(A, ONE, 0)
    watching.hear(B, ONE, 0)
    assert not watching.authors.is_run_over({A: 38, B: 36, C: 38}, 0)  # one alone does not end the run
    assert watching.authors.is_run_over({A: 38, B: 38, C: 4}, 0)
    assert watching.authors.is_run_over({A: 38, B: 36}, 60_001)  # all are silent
    assert not watching.authors.is_run_over({A: 36, B: 36}, 60_001)
    assert not clock().authors.is_run_over({OWN: 39}, 0) and not clock().authors.is_run_over({OWN: 39, A: 3}, 0)
    assert not clock().authors.is_run_over({}, 0)


def test_clock__others_have_finished__late_comer_does_the_last_round_only() -> None:
    assert clock(local_steps=2).try_start({A: 38, B: 38}, 0) == 38


def test_awaited__authors_at_work__until_their_last_round_or_for_four_of_their_intervals() -> None:
    waiting = clock(local_steps=2)
    for now_ms in (0, 30_000):
        waiting.hear(A, ONE, now_ms)
    waiting.hear(B, ONE, 30_000)  # heard of once: as slow as the slowest
    assert waiting.authors.awaited({A: 4, B: 4, C: 4, OWN: 38}, 30_000 + 4 * 30_000) == [A, B]
    assert waiting.authors.awaited({A: 38, B: 4}, 150_000) == [B]
    assert waiting.authors.awaited({A: 4, B: 4}, 150_001) == []


def test_awaited__no_interval_known__thirty_seconds_count_as_one() -> None:
    waiting = clock()
    waiting.hear(A, ONE, 0)
    assert waiting.authors.awaited({A: 4}, 4 * 30_000) == [A] and waiting.authors.awaited({A: 4}, 4 * 30_000 + 1) == []
    waiting.forget_others({})
    assert waiting.authors.awaited({}, 0) == []


def test_clock__single_step_run__is_one_step_long() -> None:
    short = StepClock(small_manifest(steps=1), OWN)
    assert short.try_start({}, 0) == 0
    short.step_finished(1, is_measured=True)
    assert short.is_finished


def long_run_clock() -> StepClock:
    return StepClock(small_manifest(steps=400), OWN)


def test_clock__faster_than_a_majority_at_work__stays_within_the_rounds_ahead() -> None:
    """Found by reading: a node ten times faster than three others had spent its run while they were at an eighth."""
    fast = long_run_clock()
    slow = dict.fromkeys((A, B, C), 0)
    for now_ms in range(0, 60_000, 50):
        if now_ms % 1_000 == 950:
            slow = {author: step + 1 for author, step in slow.items()}
            for author in slow:
                fast.hear(author, ONE, now_ms)
        if fast.try_start(slow, now_ms) is not None:
            fast.step_finished(now_ms, is_measured=True)
    assert slow[A] == 60
    assert slow[A] <= fast.next_step <= slow[A] + timings.ROUNDS_AHEAD_MAX + 1


def test_clock__nobody_heard_of_and_a_neighbour_with_work__goes_eight_rounds_and_then_waits_once() -> None:
    """A fault once: a run of two was over for the slower one before its first update."""
    fast = clock()
    for step in range(9):
        assert fast.try_start({}, 10 * step, has_company=True) == step
        fast.step_finished(10 * step + 5, is_measured=True)
    assert fast.try_start({}, 29_999, has_company=True) is None
    assert fast.try_start({}, 29_999) == 9  # the neighbour has left, or has no work
    fast.step_finished(29_999, is_measured=True)
    assert fast.try_start({}, 29_999, has_company=True) is None
    for step in range(10, 30):
        assert fast.try_start({}, 30_000 + step, has_company=True) == step
        fast.step_finished(30_000 + step, is_measured=True)


def test_clock__majority_leaves__goes_on_alone_after_its_patience() -> None:
    left_behind = long_run_clock()
    others = dict.fromkeys((A, B, C), 20)
    for author in others:
        for now_ms in (0, 500, 1_000):
            left_behind.hear(author, ONE, now_ms)
    left_behind.resume_after(20 + timings.ROUNDS_AHEAD_MAX + 2)
    assert left_behind.try_start(others, 2_000) is None
    assert left_behind.try_start(others, 1_000 + timings.STEP_WAIT_MS_START + 1) is not None


def test_clock__one_of_two_others_is_slow__goes_on_with_the_other() -> None:
    """A fault once: one key of three held the two others up, 48 times slower."""
    quick = long_run_clock()
    quick.resume_after(30)
    for author in (A, B):
        quick.hear(author, ONE, 0)
    assert quick.try_start({A: 30, B: 3}, 1) == 31
    quick.step_finished(2, is_measured=True)
    assert quick.try_start({A: 90, B: 3}, 3) is None  # A signs ahead of time: B is all that is at work
