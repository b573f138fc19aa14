"""What people read of a node: its line, its curve, its pace."""

from __future__ import annotations

import json
import math

import pytest

from sfnode.node.step_rate import RecentRate, StepRate
from sfnode.reporter import counted
from sfnode.status import Status, StatusWords, admission_of, sparkline, thinned
from sfnode.storage.evaluations import EvaluatedStep, Gain
from tests.support.statuses import DETAIL, STATUS, changed


def test_progress_line__node_at_work__has_time_speed_and_time_left() -> None:
    line = StatusWords(STATUS).progress_line
    assert line[2] == line[5] == ":" and line[8:] == (
        " step 120/500, loss 0.582, 480 updates, 3 peers, 6.0 kB/s, 1.5 steps/s, 4 min 13 s left"
    )


def test_progress_line__slow_node__says_how_many_directions_it_measures() -> None:
    slow = changed(STATUS, detail=changed(DETAIL, directions=3))
    assert ", 3 of 8 measurements, 1.5 steps/s, " in StatusWords(slow).progress_line
    assert "directions" not in StatusWords(STATUS).progress_line
    assert "directions" not in StatusWords(changed(slow, is_training=False)).progress_line


def test_progress_line__one_of_each__has_no_plural() -> None:
    line = StatusWords(changed(STATUS, updates=1, peers=1)).progress_line
    assert ", 1 update, 1 peer, " in line
    assert [counted(count, "update") for count in (0, 1, 2, 1_200)] == [
        "0 updates", "1 update", "2 updates", "1,200 updates",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"is_training": False, "step": 0}, "relaying, the run is at step 122/500"),
        ({"is_admitted": False, "step": 0}, "following, the run is at step 122/500"),
        ({"excluded_from": 7, "step": 7}, "following, the run is at step 122/500"),
        ({"catching_up": 960}, "catching up 50 %"),
    ],
)
def test_progress_line__node_without_steps_of_its_own__says_where_the_run_is(
    changes: dict[str, bool | int], said: str
) -> None:
    assert said in StatusWords(changed(STATUS, **changes)).progress_line


def test_end__neighbours_with_full_tables_of_other_authors__are_not_called_equal() -> None:
    over = changed(STATUS, is_over=True, full_peers=1)
    assert StatusWords(over).end == "apart for good from 1 peer, as the author table is full"
    both = StatusWords(changed(over, equal_peers=2)).end
    assert both == "equal with 2 peers, apart for good from 1 peer, as the author table is full"


def test_admission__relay_without_one__is_not_told_to_ask() -> None:
    relay = changed(STATUS, is_training=False, is_admitted=False, admission="invite")
    assert admission_of(relay) == "not needed: a relay contributes nothing"
    assert "ask the owner" in admission_of(changed(relay, is_training=True))


@pytest.mark.parametrize("odd", [math.nan, math.inf, -1.0, 0.0, 1e30])
def test_progress_line__odd_numbers_in_the_file__leaves_them_out(odd: float) -> None:
    detail = changed(DETAIL, left_s=odd, steps_per_s=math.nan)
    line = StatusWords(changed(STATUS, time=math.nan, detail=detail)).progress_line
    assert line.startswith("step 120") and " left" not in line


def test_recent_rate__window__forgets_what_is_older() -> None:
    rate = RecentRate(10.0)
    assert rate.take(0.0, 0.0) is None
    assert [rate.take(float(now), 2.0 * now) for now in range(1, 30)] == [2.0] * 29
    assert [rate.take(float(now), 58.0) for now in range(30, 60)][-1] == 0.0
    assert rate.take(60.0, 1.0) is None  # a counter that fell begins anew


def test_step_rate__node_that_catches_up__has_none_before_its_own_steps() -> None:
    """The film of a late node showed 152.5 steps/s and 1 s left, with a minute to go."""
    rate = StepRate(10.0)
    joining = changed(STATUS, own_updates=0, updates=0, catching_up=471)
    assert rate.of(0.0, 0, joining, is_live=False) is None
    assert rate.of(1.0, 153, changed(joining, updates=471), is_live=True) is None
    assert rate.of(2.0, 164, changed(STATUS, own_updates=9), is_live=True) is None
    assert rate.of(3.0, 165, changed(STATUS, own_updates=10), is_live=True) == 1.0


def test_step_rate__relay_started_again__has_none_before_it_knows_what_the_others_hold() -> None:
    """Step 100 from its disk, 500 from its neighbours a second later: that was 400 steps/s, for two minutes."""
    relay, rate = changed(STATUS, is_training=False, own_updates=0), StepRate(120.0)
    assert [rate.of(0.0, 100, relay, is_live=False), rate.of(1.0, 500, relay, is_live=True)] == [None, None]
    assert [rate.of(2.0, 501, relay, is_live=True), rate.of(3.0, 502, relay, is_live=True)] == [1.0, 1.0]


@pytest.mark.parametrize(("pace", "round_steps"), [(0.1, 1), (2.0, 1), (2.0, 16), (50.0, 1)])
def test_step_rate__machine_that_slept__forgets_what_came_at_once_when_it_woke(pace: float, round_steps: int) -> None:
    rate = StepRate(120.0, round_steps)
    steps = [round_steps * int(pace * second / round_steps) for second in range(240)]
    found = [rate.of(float(second), step, STATUS, is_live=True) for second, step in enumerate(steps)]
    assert found[-1] == pytest.approx(pace, rel=0.15)
    slept = 3_600 * max(1, int(pace))
    later = [rate.of(240.0 + second, step + slept, STATUS, is_live=True) for second, step in enumerate(steps)]
    assert later[0] is None and all(each is None or each <= 2 * pace + round_steps for each in later)
    assert later[-1] == pytest.approx(pace, rel=0.15)


def test_time_left__node_that_catches_up__is_not_that_of_the_run() -> None:
    words = StatusWords(changed(STATUS, catching_up=1_920, detail=changed(DETAIL, left_s=75.0)))
    assert (words.time_left, StatusWords(STATUS).time_left) == ("caught up in 1 min 15 s", "4 min 13 s left")


def test_gain__with_and_without_own_examples__says_what_the_run_has_given() -> None:
    before, own, after = (
        EvaluatedStep(step=step, accuracy=accuracy, loss=0.5, rows=1_500)
        for step, accuracy in ((0, 0.5524), (24, 0.7211), (24, 0.8018))
    )
    gain = Gain(before=before, own=own, after=after)
    assert StatusWords(changed(STATUS, detail=changed(DETAIL, gain=gain))).gain == (
        "the model alone 55.2 %, the run now 80.2 %, own data alone 72.1 % (1,500 held-out rows, step 24)"
    )
    gain = Gain(before=before, own=None, after=after)
    assert StatusWords(changed(STATUS, detail=changed(DETAIL, gain=gain))).gain == (
        "the model alone 55.2 %, the run now 80.2 % (1,500 held-out rows, step 24; "
        "`sfnode eval --compare` measures own data alone, too)"
    )
    told = "`sfnode eval --compare` measures the model alone, the run now and own data alone"
    assert StatusWords(changed(STATUS, detail=changed(DETAIL, gain=None))).gain == told
    assert StatusWords(changed(STATUS, updates=0, detail=None)).gain == ""


def test_sparkline__curve__has_its_shape_and_width() -> None:
    assert sparkline([1.0, 0.5, 0.0], 10) == "█▅▁"
    assert sparkline([1.0, 0.5, 0.0], 10, is_ascii=True) == "#-_"
    assert len(sparkline([float(n) for n in range(1_000)], 30)) == 30
    assert sparkline([], 9) == "" and sparkline([math.nan, 2.0, 2.0], 9) == "▁▁"
    assert thinned(range(100), 5)[0] == 0 and thinned(range(100), 5)[-1] == 99


def test_status__detail__survives_the_file() -> None:
    """What is written as JSON is read again as it was."""
    assert Status.from_json_untrusted(json.loads(json.dumps(STATUS.to_json())), "status") == STATUS


def test_own_updates__counted_a_moment_later__are_never_more_than_all() -> None:
    """A node of one author said: 7 (116.7 % of all)."""
    later = changed(STATUS, updates=6, detail=changed(DETAIL, own_updates=7, peers=()))
    assert StatusWords(later).own_updates == "7 (100.0 % of all)"
