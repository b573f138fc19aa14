"""A start from a short first-order run: what its adapters did is in the weights, and held-back examples judge it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import PreTrainedModel

from protocol.errors import OperatorError
from sfnode.storage.stored_bases import UNIT_EXP
from sfnode.training.calibration import Calibration, FoundBasis, sources, trajectory
from sfnode.training.calibration.trajectory import apart, trajectory_basis
from sfnode.training.model.tensors import TensorGroup, trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import Example, TaskData, read_task, row_batch
from sfnode.worker_protocol import CalibrationOptions, Source
from tests.support.tiny_models import model_manifest, tiny_gpt2, tiny_llama, tiny_opt, tiny_tokenizer, write_reviews

MODELS: dict[str, Callable[[], PreTrainedModel]] = {"opt": tiny_opt, "gpt2": tiny_gpt2, "llama": tiny_llama}
PROMPTS = tuple((5 + number % 7, 6 + number % 3) for number in range(64))


@pytest.fixture
def shared() -> SharedModel:
    return SharedModel(tiny_opt())


@pytest.fixture
def data(tmp_path: Path) -> TaskData:
    return reviews(tiny_opt(), tmp_path)


def reviews(model: PreTrainedModel, folder: Path) -> TaskData:
    spec = model_manifest(model, [TensorGroup.LINEAR]).task
    return read_task(tiny_tokenizer(), spec, write_reviews(folder / "reviews.jsonl"), None)


def of(shared: SharedModel, data: TaskData) -> Calibration:
    return Calibration(shared=shared, tensors=trainable_tensors(shared.model), data=data)


def of_kind(data: TaskData, candidates: Callable[[int], tuple[tuple[int, ...], ...]]) -> TaskData:
    """Tasks without label words: what follows the prompt, of which the first choice is right."""
    examples = tuple(
        Example(tokens=prompt, label=0, candidates=candidates(number)) for number, prompt in enumerate(PROMPTS)
    )
    return replace(data, examples=examples, label_tokens=())


def found_in(shared: SharedModel, data: TaskData, count: int = 64) -> FoundBasis:
    options = CalibrationOptions(data="", source=Source.TRAJECTORY, examples=count)
    return sources.new_basis(of(shared, data), options, None)


@pytest.mark.parametrize("name", MODELS)
def test_trajectory_basis__adapters_taken_off__the_start_does_what_they_did(name: str, tmp_path: Path) -> None:
    shared = SharedModel(MODELS[name]())
    data = reviews(shared.model, tmp_path)
    tensors = trainable_tensors(shared.model)
    rows = row_batch(data.examples, data.pad, shared.device)
    before = functional.cross_entropy(shared.label_logits(rows, data.label_tokens), rows.labels)
    found = trajectory_basis(of(shared, data), [data.examples] * 12, (), 1)
    assert torch.equal(before, functional.cross_entropy(shared.label_logits(rows, data.label_tokens), rows.labels)), (
        "an adapter is still there"
    )
    assert found.start is not None and found.learning_rate is not None
    for tensor, product in zip(tensors, found.start.products, strict=True):
        assert product is not None and product.v is not None
        u, v = (torch.from_numpy(side).float() for side in (product.u, product.v))
        shared.switch.base[tensor.name] += 2.0 ** (found.start.exp - 2 * UNIT_EXP) * u @ v.T
    after = functional.cross_entropy(shared.label_logits(rows, data.label_tokens), rows.labels)
    assert after < before - 0.1


@pytest.mark.parametrize("count", [1, 7, 8, 100, 960])
def test_apart__examples__those_that_judge_are_from_all_over_and_train_nothing(count: int) -> None:
    examples = [Example(tokens=(number,), label=0) for number in range(count)]
    kept, held = apart(examples)
    assert sorted(each.tokens[0] for each in (*kept, *held)) == list(range(count))
    assert len(held) == min(count // 8, 64)
    assert not held or held[-1].tokens[0] > 0.8 * count - 8


def test_basis_of__choices__as_good_on_held_back_ones_as_it_says_and_each_row_counts(
    shared: SharedModel, data: TaskData
) -> None:
    choices = of_kind(data, lambda _: ((9, 10), (11,), (12, 13, 14)))
    found = found_in(shared, choices)
    assert found.start is not None and found.of_start is not None and found.of_model is not None
    assert found.of_start.loss < found.of_model.loss - 0.05
    assert (found.of_start.accuracy or 0) >= (found.of_model.accuracy or 0)
    assert found.rows == 3 * (56 * 3 + 8 * 3)  # three rows an example; a backward pass counts as two, and three lengths


def test_basis_of__texts__their_loss_alone(shared: SharedModel, data: TaskData) -> None:
    found = found_in(shared, of_kind(data, lambda number: ((9 + number % 2, 10),)))
    assert found.of_start is not None and found.of_model is not None
    assert found.of_start.accuracy is found.of_model.accuracy is None
    assert found.of_start.loss < found.of_model.loss - 0.05


def test_basis_of__held_back_examples_say_the_contrary__no_start_and_columns_all_the_same(
    shared: SharedModel, data: TaskData
) -> None:
    """A short run with too few examples learns them by heart; a run set out from there."""
    choices = of_kind(data, lambda _: ((9, 10), (11,)))
    lies = tuple(replace(each, label=int(number % 8 == 0)) for number, each in enumerate(choices.examples))
    assert all(each.label for each in apart(lies)[1])
    found = found_in(shared, replace(choices, examples=lies))
    assert found.start is None and found.of_start is None and found.of_model is not None
    assert any(basis.u.any() for basis in found.bases) and found.learning_rate is not None


def test_basis_of__many_choices__fewer_examples(shared: SharedModel, data: TaskData) -> None:
    """Four choices an example took four times as long: 22 minutes for SmolLM2."""
    choices = of_kind(data, lambda _: ((9,), (10,), (11,), (12,)))
    many = replace(choices, examples=choices.examples * 20)
    found = sources.new_basis(of(shared, many), CalibrationOptions(data=""), None)
    assert 3 * 1_900 < found.rows <= 3 * 1_920


def test_trajectory_basis__a_batch_in_parts__the_start_of_the_whole_one(
    shared: SharedModel, data: TaskData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen examples of four choices took 12 GB at once."""
    choices = of_kind(data, lambda number: ((9, 10), (11,))[: 1 + number % 2])
    batches = [choices.examples[:10]] * 3
    whole = trajectory_basis(of(shared, choices), batches, (), 1)
    monkeypatch.setattr(trajectory, "_ROWS_AT_ONCE", 3)
    parts = trajectory_basis(of(shared, choices), batches, (), 1)
    assert whole.start is not None and parts.start is not None and whole.start.exp == parts.start.exp
    for one, other in zip(whole.start.products, parts.start.products, strict=True):
        assert one is not None and other is not None
        assert np.abs(one.u.astype(int) - other.u).max() <= 1  # rounded


def test_trajectory_basis__model_that_overflows__says_so_and_takes_its_adapters_off(
    shared: SharedModel, data: TaskData
) -> None:
    next(iter(shared.switch.base.values())).fill_(torch.nan)
    with pytest.raises(OperatorError, match="not finite on the calibration examples; try --dtype fp32"):
        found_in(shared, data)
    assert not any(module._forward_hooks for module in shared.model.modules())
