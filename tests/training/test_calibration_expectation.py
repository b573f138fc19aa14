"""What `sfnode init` tries to say what to expect: on examples that nobody has seen, until a rate does no harm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from protocol.limits import NORMALISED_CLIP
from protocol.subspace.bases import Bases
from sfnode.training.calibration import Calibration, RateTrial, sources
from sfnode.training.calibration.expectation import set_apart, steps_of, try_rates
from sfnode.training.describe import RunModel
from sfnode.training.model.tensors import TensorGroup, trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import Example, TaskData
from tests.support.tiny_models import model_manifest, tiny_opt

USUAL, WILD, STILL = -20, -10, -60


def examples(count: int) -> tuple[Example, ...]:
    """All different; the last word says the label."""
    return tuple(
        Example(tokens=(3 + number % 40, 3 + number // 40, 46 + number % 2), label=number % 2)
        for number in range(count)
    )


def data_of(count: int, used: int) -> TaskData:
    """``used`` examples were the calibration's."""
    data = TaskData(label_tokens=(3, 4), examples=examples(count))
    return set_apart(data, data.examples[:used])


@pytest.mark.parametrize(("count", "used", "held"), [(280, 20, 200), (60, 20, 40), (20, 20, 0)])
def test_set_apart__some_examples_were_used__the_held_back_ones_are_others_and_the_author_has_the_rest(
    count: int, used: int, held: int
) -> None:
    data = data_of(count, used)
    apart = set(data.evaluation_examples)
    assert len(data.evaluation_examples) == len(apart) == held
    assert not apart & set(examples(used)) and not apart & set(data.examples)
    assert apart | set(data.examples) == set(examples(count))


def test_set_apart__same_example_twice__is_not_held_back_where_its_twin_was_used() -> None:
    twice = TaskData(label_tokens=(3, 4), examples=examples(40) * 2)
    data = set_apart(twice, twice.examples[:30])
    assert set(data.evaluation_examples) == set(examples(40)[30:])
    assert set(data.examples) == set(examples(30))


@pytest.mark.parametrize(
    ("rows", "batch", "local_steps", "expected"),
    [
        (950, 16, 1, range(8)),  # 256 rows of at most 316
        (400, 16, 1, range(4)),
        (950, 64, 1, range(2)),
        (40, 16, 1, range(1)),
        (950, 16, 4, range(0, 8, 4)),
    ],
)
def test_steps_of__calibration_took_few_rows__no_more_than_a_third_of_them_but_one_round(
    rows: int, batch: int, local_steps: int, expected: range
) -> None:
    plain = model_manifest(tiny_opt(), [TensorGroup.LINEAR])
    task, method = replace(plain.task, batch_rows=batch), replace(plain.method, local_steps=local_steps)
    manifest = replace(plain, task=task, method=replace(method, epoch_steps=64), steps=64)
    assert steps_of(manifest, data_of(60, 20), rows) == expected


def tried_at(data: TaskData, *rates: int) -> tuple[RateTrial, ...]:
    """A rate is the exponent alpha_exp of the tiny model's run, and STILL is one at which nothing moves."""
    model = tiny_opt()

    def bases_at(rate: float) -> Bases:
        if rate == STILL:
            return Bases(model_manifest(model, [TensorGroup.LINEAR], quantum_exp=10))
        normalised: dict[str, Any] = {"scalar": "normalised", "clip": NORMALISED_CLIP}
        return Bases(model_manifest(model, [TensorGroup.LINEAR], **normalised, directions=2, alpha_exp=round(rate)))

    calibration = Calibration(shared=SharedModel(model), tensors=trainable_tensors(model), data=data)
    return try_rates(calibration, bases_at, rates, 950)


def misleading() -> TaskData:
    """The author's examples all have one label, those held back the other."""
    data = data_of(100, 20)
    held = tuple(replace(each, label=1) for each in data.evaluation_examples)
    return replace(data, examples=tuple(replace(each, label=0) for each in data.examples), evaluation_examples=held)


def test_try_rates__first_one_does_no_harm__no_other_is_tried() -> None:
    (trial,) = tried_at(data_of(100, 20), USUAL, WILD)
    assert trial.rate == USUAL and not trial.hurts
    assert trial.before.accuracy is not None and trial.after.accuracy is not None
    assert trial.change.examples == 80 and 0 < trial.error < 0.1
    assert trial.change.loss_before == trial.before.loss > trial.after.loss == trial.change.loss_after
    assert trial.change.rows == trial.step_rows + 2 * 80 == 8 * 2 * 8 + 2 * 80


def test_try_rates__one_raises_the_loss__the_next_is_tried_from_the_same_place() -> None:
    wild, still = tried_at(misleading(), WILD, STILL)
    assert wild.hurts and wild.after.loss > wild.before.loss
    assert still.rate == STILL and not still.hurts and still.before == wild.before


def test_try_rates__all_raise_the_loss__all_are_told() -> None:
    tried = tried_at(misleading(), WILD, WILD - 1)
    assert [(each.rate, each.hurts) for each in tried] == [(WILD, True), (WILD - 1, True)]


def test_try_rates__texts_without_choices__loss_and_its_error_alone() -> None:
    texts = tuple(Example(tokens=each.tokens, label=0, candidates=((5, 6),)) for each in examples(100))
    (trial,) = tried_at(set_apart(TaskData(label_tokens=(), examples=texts), texts[:20]), STILL)
    assert trial.before.accuracy is trial.after.accuracy is None and trial.error > 0


@pytest.mark.parametrize(("count", "trials"), [(1_000, 1), (820, 0)])
def test_try_described__listener__hears_of_every_pass_and_how_many_there_will_be(count: int, trials: int) -> None:
    """A calibration takes 800 examples of two labels: 20 are too few to judge anything by."""
    model = tiny_opt()
    manifest = model_manifest(model, [TensorGroup.LINEAR])
    data = TaskData(label_tokens=(3, 4), examples=examples(count))
    described = RunModel(spec=manifest.model, tensors=trainable_tensors(model), left_out={}, model=model, data=data)
    told: list[tuple[int, int]] = []
    tried = sources.try_described(described, 950, lambda _: Bases(manifest), [1.0], lambda *each: told.append(each))
    assert len(tried) == trials
    assert told[-1:] == [(each.change.rows, each.change.rows) for each in tried]
    assert [each.change.examples for each in tried] == [200] * trials
