"""A node of a run that learns from rewards shows mean rewards, which rise, wherever others show losses."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from protocol.ledger.roster import Roster
from protocol.run.task import TaskKind
from sfnode.cli.status import _rows
from sfnode.metrics import exposition
from sfnode.node.watching.learning_curve import LearningCurve
from sfnode.quality_figures import AnswerSpread, Quality, SampleAnswer
from sfnode.reporter import Reporter
from sfnode.status import LossPoint, Status, StatusWords, sparkline
from sfnode.status.learning import (
    better_before_in_words,
    describe_learning,
    has_become_worse,
    one_answer_in_words,
)
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.evaluations import EvaluatedStep, Gain, best_of
from sfnode.top.screen import NodeView, draw
from tests.support.manifests import small_manifest
from tests.support.reward_runs import RULE, rewarded
from tests.support.statuses import DETAIL, STATUS, changed

ROSTER = Roster(small_manifest())
LABELS, REWARDS = Quality(is_reward=False), Quality(is_reward=True)


def evaluated(*rewards: float, rows: int = 400) -> tuple[EvaluatedStep, ...]:
    return tuple(
        EvaluatedStep(step=10 * at, accuracy=mean / 2, loss=1 - mean, rows=rows, reward=mean)
        for at, mean in enumerate(rewards)
    )


def node(*rewards: float, sampled: tuple[float, ...] = ()) -> Status:
    """A node of such a run, with these means on held-out data."""
    found = evaluated(*rewards)
    losses = tuple(LossPoint(step=at, loss=1 - mean, reward=mean) for at, mean in enumerate(sampled))
    detail = changed(DETAIL, evaluations=found, best=best_of(found), losses=losses, gain=None)
    return changed(STATUS, is_rewarded=True, loss=0.58, reward=0.42, detail=detail)


def test_quality__labels_and_rewards__are_called_and_printed_in_their_own_way() -> None:
    task = small_manifest().task
    assert Quality.of(task) == LABELS and Quality.of(rewarded(task)) == REWARDS
    assert rewarded(task).kind is TaskKind.REWARD
    assert (LABELS.name, LABELS.figure(0.5821), LABELS.figure(0.5821, 3), LABELS.share(0.74)) == (
        "loss", "0.5821", "0.582", "accuracy 74.0 %"
    )  # fmt: skip
    assert (REWARDS.name, REWARDS.figure(0.5821), REWARDS.figure(0.5821, 3), REWARDS.share(0.74)) == (
        "mean reward", "0.42", "0.42", "74.0 % fully right"
    )  # fmt: skip
    assert (LABELS.reward(0.25), REWARDS.reward(None), REWARDS.reward(0.25)) == (None, None, 0.75)


def test_words__rewards__stand_in_the_place_of_losses() -> None:
    words = StatusWords(node(0.10, 0.30, 0.25))
    assert ", mean reward 0.42, " in words.progress_line and "loss" not in words.progress_line
    assert words.evaluations == "mean reward 0.25, 12.5 % fully right at step 20; best 0.30 at step 10"
    assert StatusWords(node(0.10, 0.30)).evaluations.endswith("at step 10 (the best so far)")


def test_status_command__rewards__has_their_row_and_a_curve_that_rises() -> None:
    rows = _rows(node(0.1, 0.3, 0.9))
    assert rows["reward"] == "0.42 on the last training batch" and "loss" not in rows
    assert rows[""] == f"{sparkline([0.1, 0.3, 0.9], 48)} held-out reward"
    assert _rows(changed(node(), loss=None))["reward"] == "none yet"
    assert _rows(STATUS)["loss"] == "0.5821 on the last training batch"


def test_words__rows_that_name_right_answers__call_the_chance_of_a_token_no_mean_reward(tmp_path: Path) -> None:
    """One name meant two measures: 0.90 while nodes learnt, and 0.10 by the rule, of what the model then wrote."""
    status = changed(node(0.10, 0.30), names_answers=True, loss=0.1, reward=None, chance=0.9)
    words, rows = StatusWords(status), _rows(status)
    assert ", chance of a right token 0.90, " in words.progress_line and "reward" not in words.progress_line
    assert words.evaluations.startswith("mean reward 0.30, ")
    assert rows["chance"] == "0.90 on the last training batch" and "reward" not in rows and "loss" not in rows
    text = exposition(status).decode()
    assert "\nsfnode_chance_ratio 0.9\n" in text and "sfnode_reward_ratio" not in text and "_nats" not in text
    flat = changed(node(sampled=(0.3, 0.31) * 25), names_answers=True)
    assert describe_learning(flat).startswith("not learning: the chance of a right token in training has not risen")
    task = rewarded(small_manifest().task, {**RULE, "answer": "{wanted}"})
    named = Quality.of(task)
    assert named == Quality(is_reward=True, names_answers=True)
    assert (named.of_training(0.25), REWARDS.of_training(0.25), LABELS.of_training(0.25)) == (
        (None, 0.75), (0.75, None), (None, None)
    )  # fmt: skip
    console = Console(width=100, file=io.StringIO(), record=True)
    view = NodeView(data_dir=DataDirectory(tmp_path), status=status)
    console.print(draw((view, view)))
    assert "chance" in (shown := console.export_text()) and "reward" not in shown


def test_screen__rewards__are_named_on_both_screens() -> None:
    def shown(*views: NodeView) -> str:
        console = Console(width=100, file=io.StringIO(), record=True)
        console.print(draw(views))
        return console.export_text()

    view = NodeView(data_dir=DataDirectory(Path("a")), status=node(0.1, 0.3, sampled=(0.1, 0.2)))
    one, two = shown(view), shown(view, view)
    assert "reward" in one and "0.30" in one and "15.0 % fully right" in one and "loss" not in one
    assert "reward" in two and "0.42" in two and "loss" not in two
    assert "loss/reward" in shown(view, NodeView(data_dir=DataDirectory(Path("b")), status=STATUS))
    named = changed(view.status, life=replace(view.status.life, names_answers=True)) if view.status else None
    both = shown(view, NodeView(data_dir=DataDirectory(Path("c")), status=named))
    assert "chance/reward" in both and "loss" not in both  # neither run has a loss


def test_exposition__rewards__take_the_place_of_the_loss() -> None:
    text = exposition(node(0.1)).decode()
    assert "\nsfnode_reward_ratio 0.42\n" in text and "sfnode_loss_nats" not in text
    assert "sfnode_reward_ratio" not in exposition(STATUS).decode()


def test_learning__mean_reward_not_above_the_model_alone__is_named() -> None:
    assert describe_learning(node(0.20, 0.21, 0.19, 0.20, 0.22, 0.20)) == (
        "not learning: the mean reward on held-out data has not risen by more than its noise since step 0 "
        "(0.20, now 0.20)"
    )
    assert describe_learning(node(0.1, 0.3, 0.35, 0.4, 0.42, 0.41)) == ""


def test_learning__rule_learnt_at_once__is_compared_with_the_model_alone() -> None:
    """The first fifth of the evaluations has the reward already that the last fifth has."""
    assert describe_learning(node(0.2, *(0.79, 0.8, 0.81, 0.8) * 5)) == ""
    assert describe_learning(node(*(1.0,) * 9)) == ""  # there is nothing more to learn


def test_learning__sampled_answers__decide_where_nothing_is_held_out() -> None:
    flat = describe_learning(node(sampled=(0.3, 0.31) * 25))
    assert flat.startswith("not learning: the mean reward in training has not risen")
    assert describe_learning(node(sampled=tuple(at / 50 for at in range(50)))) == ""


def test_best_step__rewards__is_the_one_of_most() -> None:
    best = best_of(evaluated(0.1, 0.6, 0.5))
    assert best is not None and (best.step, best.reward) == (10, 0.6)


@pytest.mark.parametrize(
    ("rewards", "is_worse"),
    [
        ((0.1, 0.6, 0.45, 0.44, 0.46), True),
        ((0.1, 0.6, 0.58, 0.59, 0.57), False),
        # 105 % of the least loss would be half an answer here
        ((0.1, 0.99, 0.985, 0.984, 0.986), False),
        ((0.1, 1.0, 0.9, 0.9, 0.9), True),
        ((0.0, 0.01, 0.0, 0.0, 0.0), False),
    ],
)
def test_worse__rewards__fall_by_more_than_a_twentieth_and_chance(rewards: tuple[float, ...], is_worse: bool) -> None:
    assert has_become_worse(evaluated(*rewards)) is is_worse


def test_worse__few_rows__are_no_reason_to_worry() -> None:
    assert not has_become_worse(evaluated(0.1, 0.6, 0.5, 0.5, 0.5, rows=16))


def test_gain__rewards__are_named_with_the_share() -> None:
    before, after = evaluated(0.1, 0.42)
    assert Gain(before=before, own=None, after=after).in_words().startswith(
        "the model alone mean reward 0.10 (5.0 % fully right), the run now mean reward 0.42 (21.0 % fully right)"
    )  # fmt: skip


def test_learning_curve__rewards__keeps_the_answers_of_both_ends_and_warns_in_words(tmp_path: Path) -> None:
    said = io.StringIO()
    curve = LearningCurve(DataDirectory(tmp_path), Reporter(stream=said), ROSTER, REWARDS)
    answer = SampleAnswer(prompt="p", text="t", reward=1.0)
    for each in evaluated(0.1, 0.6, 0.3, 0.3, 0.3):
        curve.take([replace(each, answers=(answer,))])
    curve.losses.take(4, 0.75)
    again = DataDirectory(tmp_path).evaluations.read()
    assert [len(each.answers) for each in again] == [1, 0, 0, 0, 1]
    shown = curve.statistics()
    assert all(not each.answers for each in shown.evaluations) and shown.best == shown.evaluations[1]
    assert shown.gain is not None and shown.gain.before.answers == shown.gain.after.answers == ()  # rows may be private
    assert shown.losses == (LossPoint(step=4, loss=0.75, reward=0.25),)
    assert "the mean reward on held-out data has fallen from 0.60 at step 10 to 0.30. " in said.getvalue()


def spread_over(*found: tuple[float, float]) -> list[EvaluatedStep]:
    """Mean rewards, with the share of 128 prompts that get the commonest answer."""
    spreads = [AnswerSpread(distinct=2, commonest="yes", share=share) for _, share in found]
    rewards = evaluated(*(mean for mean, _ in found), rows=128)
    return [replace(each, spread=spread) for each, spread in zip(rewards, spreads, strict=True)]


def test_spread__answers__are_counted_and_the_commonest_is_named() -> None:
    assert AnswerSpread.of(["yes"] * 3 + ["no"]).in_words() == '2 different answers, "yes" to 75.0 % of the prompts'
    assert AnswerSpread.of(["no"]).in_words() == '1 different answer, "no" to 100.0 % of the prompts'
    assert AnswerSpread.of([str(number) for number in range(1_000)]).in_words() == "1,000 different answers"
    assert len(AnswerSpread.of(["long " * 99]).commonest) == 80


@pytest.mark.parametrize(
    ("found", "is_said"),
    [
        (((0.01, 0.1), (0.62, 0.7), (0.55, 1.0)), True),  # yes to everything, and half of it wrong
        (((0.01, 0.1), (0.53, 0.97)), True),
        (((0.01, 0.1), (0.62, 0.7), (0.60, 0.75)), False),
        (((0.2, 0.1), (0.62, 0.3), (0.40, 0.7)), True),  # spreads, and rewards fall
        (((0.2, 0.1), (0.62, 0.3), (0.60, 0.7)), False),  # by chance
        (((0.2, 0.1), (0.99, 0.96)), False),  # nearly all prompts have this answer
        (((0.0, 1.0),), False),  # the model alone
    ],
)
def test_one_answer__to_nearly_all_prompts_and_often_wrong__is_said(
    found: tuple[tuple[float, float], ...], is_said: bool
) -> None:
    assert bool(one_answer_in_words(spread_over(*found))) is is_said


def test_one_answer__it_spreads__is_in_the_log_once_and_in_the_status(tmp_path: Path) -> None:
    said = io.StringIO()
    curve, found = LearningCurve(DataDirectory(tmp_path), Reporter(stream=said), ROSTER, REWARDS), spread_over
    steps = found((0.01, 0.1), (0.64, 0.7), (0.55, 1.0), (0.55, 1.0))
    for each in steps:
        curve.take([each])
    assert said.getvalue().count("drawn answers teach nothing where all are the same. If this stays so, make") == 1
    assert DataDirectory(tmp_path).evaluations.read() == steps
    shown = changed(node(0.1, 0.3), detail=replace(DETAIL, curve=curve.statistics()))
    assert describe_learning(shown).startswith(
        "the model gives one answer to 100.0 % of the prompts (mean reward 0.55, after 0.64 at step 10), and "
    )
    assert StatusWords(shown).evaluations.endswith("; 2 different answers, one answer to 100.0 % of the prompts")
    assert better_before_in_words(steps) == (
        "the mean reward on held-out data was better before: 0.55 at step 30, 0.64 at step 10. "
        "Take that model with --at-step best"
    )
    assert better_before_in_words(steps[:2]) == better_before_in_words([]) == ""
