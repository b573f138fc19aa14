"""A run that does not learn is called so; one that learns, or of which too little is known, is not."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from sfnode.node.watching.learning_curve import LossSeries
from sfnode.status import LossPoint
from sfnode.status.learning import describe_learning, has_become_worse, has_fallen
from sfnode.storage.evaluations import EvaluatedStep
from tests.support.statuses import DETAIL, STATUS, changed


def losses(seed: int, count: int, course: Callable[[float], float]) -> list[float]:
    """``course`` over 0...1, with noise of 0.05."""
    chance = random.Random(seed)
    return [course(number / (count - 1)) + chance.gauss(0.0, 0.05) for number in range(count)]


@pytest.mark.parametrize("count", [40, 128])
def test_has_fallen__noise_alone__is_seldom_taken_for_learning(count: int) -> None:
    found = sum(has_fallen(losses(seed, count, lambda _: 0.69)) for seed in range(400))
    assert found < 400 * 0.05


@pytest.mark.parametrize("count", [40, 128])
def test_has_fallen__slow_fall_or_early_fall__is_seen(count: int) -> None:
    for seed in range(100):
        assert has_fallen(losses(seed, count, lambda share: 0.69 - 0.2 * share))
        assert has_fallen(losses(seed, count, lambda share: max(0.29, 0.69 - 2 * share)))


def test_has_fallen__rising_losses__is_no_learning() -> None:
    assert not has_fallen([0.5 + step / 100 for step in range(40)])


def evaluated(found: list[float]) -> tuple[EvaluatedStep, ...]:
    return tuple(EvaluatedStep(step=10 * n, accuracy=0.5, loss=loss, rows=9) for n, loss in enumerate(found))


def test_learning__flat_held_out_loss__is_named_with_its_figures() -> None:
    flat = changed(DETAIL, evaluations=evaluated([0.693, 0.694, 0.692, 0.693, 0.694, 0.693]))
    assert describe_learning(changed(STATUS, detail=flat)) == (
        "not learning: the held-out loss has not fallen by more than its noise since step 0 (0.693, now 0.693)"
    )


def test_learning__falling_held_out_loss__decides_over_flat_batches() -> None:
    batches = tuple(LossPoint(step=step, loss=0.7) for step in range(60))
    detail = changed(DETAIL, evaluations=evaluated([0.69, 0.68, 0.66, 0.64, 0.63, 0.60]), losses=batches)
    assert describe_learning(changed(STATUS, detail=detail)) == ""
    alone = describe_learning(changed(STATUS, detail=changed(detail, evaluations=())))
    assert alone.startswith("not learning: the training loss")


def test_learning__few_points_or_a_relay__says_nothing() -> None:
    few = changed(DETAIL, evaluations=evaluated([0.7] * 5), losses=DETAIL.curve.losses[:39])
    assert describe_learning(changed(STATUS, detail=few)) == ""
    flat = changed(DETAIL, evaluations=evaluated([0.7] * 9))
    assert describe_learning(changed(STATUS, detail=flat, is_training=False)) == ""


def test_loss_series__long_run__stays_short_and_keeps_the_mean() -> None:
    series = LossSeries()
    for step in range(10_000):
        series.take(step, float(step))
    assert len(series.points) <= 128
    assert series.points[0].loss == pytest.approx(series.points[0].step / 2)
    widths = {b.step - a.step for a, b in zip(series.points, series.points[1:], strict=False)}
    assert len(widths) == 1


@pytest.mark.parametrize(
    ("measured", "is_worse"),
    [
        ((0.7, 0.4, 0.45, 0.45, 0.45), True),
        ((0.7, 0.4, 0.41, 0.41, 0.41), False),  # within five per cent
        ((0.7, 0.4, 0.9, 0.9), False),  # too early to tell
        ((0.4, 0.9, 0.9, 0.9, 0.3), False),
        ((), False),
    ],
)
def test_has_become_worse__after_three_more_evaluations__tells(measured: tuple[float, ...], is_worse: bool) -> None:
    assert has_become_worse(evaluated([*measured])) == is_worse
