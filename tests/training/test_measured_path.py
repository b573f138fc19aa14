"""The U of a layer: what makes a move of its output arrive at the label words' logits."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from protocol.run.manifest import TensorSpec
from sfnode.training.calibration import calibrate, measured_path, moving_tensors
from sfnode.training.calibration.measured_path import measured_sides
from sfnode.training.calibration.residual_writers import writers_of
from sfnode.training.dense_estimate import contrasts, last_places
from sfnode.training.model import wide_products
from sfnode.training.model.tensor_groups import places, trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.candidates import RowBatch, batch_of
from sfnode.training.task.encoding import TaskData
from tests.support.tiny_models import tiny_gpt2, tiny_llama, tiny_opt
from tests.training.test_dense_estimate import some_words

_MOVE = 1e-3


def moving(shared: SharedModel) -> Sequence[TensorSpec]:
    return moving_tensors(writers_of(shared, trainable_tensors(shared.model)), has_label_words=True)


def sides_of(shared: SharedModel, data: TaskData) -> list[Tensor] | None:
    return measured_sides(shared, moving(shared), data, lambda _done: None)


def mean_contrasts(shared: SharedModel, data: TaskData, layer: nn.Module, move_H: Tensor) -> Tensor:
    """The mean of the label words' logits along each contrast, with the layer's output moved at the last token."""
    rows = batch_of(data, data.examples, 1, shared.device)
    assert isinstance(rows, RowBatch)

    def moved(_module: object, _inputs: object, output: Tensor) -> Tensor:
        y = output.clone()
        y.view(-1, y.shape[-1])[last_places(rows)] += move_H.to(y.dtype)
        return y

    with ExitStack() as hooks, torch.inference_mode(), shared.pass_context.carrying({}, 1, rows.tokens.numel()):
        hooks.enter_context(layer.register_forward_hook(moved))
        logits = shared.label_logits(rows, data.label_tokens).double()
    return (logits @ contrasts(len(data.label_tokens)) / len(data.label_tokens)).mean(dim=0)


@pytest.mark.parametrize("model", [tiny_llama, tiny_gpt2, tiny_opt])
def test_measured_sides__a_move_along_a_column__moves_the_logits_by_that_contrast(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_path, "_DAMPING", 0.0)
    shared = SharedModel(model().double())
    data = some_words()
    sides = sides_of(shared, data)
    assert sides is not None and len(sides) == len(moving(shared))
    for tensor, side in zip(moving(shared), sides, strict=True):
        layer = places(shared.model)[tensor.name].module
        for column in range(side.shape[1]):
            ends = [mean_contrasts(shared, data, layer, sign * _MOVE * side[:, column]) for sign in (1, -1)]
            expected = torch.eye(side.shape[1], dtype=torch.float64)[column]
            torch.testing.assert_close((ends[0] - ends[1]) / (2 * _MOVE), expected, atol=1e-3, rtol=0)


def test_measured_sides__contrasts_that_hardly_arrive__get_short_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words counted in threes: eight and nine are alike for a model, and the columns between them were ten times as
    long as the others. The run had a twelfth of its rate, and 32 % in place of 39."""
    shared, data = SharedModel(tiny_llama()), some_words()
    derivative = torch.zeros(2, 8, dtype=torch.float64)
    derivative[0, 3], derivative[1, 5] = 2.0, 0.2
    monkeypatch.setattr(measured_path, "_derivatives", lambda _m, _t, rows, _l: [derivative * len(rows.tokens)])
    sides = sides_of(shared, data)
    assert sides is not None
    arrives = derivative @ sides[0]
    assert arrives[0, 0] == pytest.approx(1.0) and arrives[0, 1] == arrives[1, 0] == 0.0
    assert 0.05 < arrives[1, 1] < 0.2
    lengths = sides[0].norm(dim=0)
    assert lengths[1] < 2 * lengths[0], "undamped, it would be ten times as long"


def test_measured_sides__bf16_in_wide_products__is_near_that_of_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """On processors without instructions for bf16, its products are made in fp32."""
    monkeypatch.setattr(wide_products, "rows_to_widen", lambda *_: 1)
    half = SharedModel(tiny_llama().to(torch.bfloat16))
    assert half.is_widened
    found, exact = sides_of(half, some_words()), sides_of(SharedModel(tiny_llama()), some_words())
    assert found is not None and exact is not None
    for one, other in zip(found, exact, strict=True):
        assert float((one - other).norm()) < 0.1 * float(other.norm())


def test_measured_sides__on_the_way__tells_of_all_examples_and_leaves_no_hook() -> None:
    shared, data, done = SharedModel(tiny_llama()), some_words(), list[int]()
    measured_sides(shared, moving(shared), data, done.append)
    assert done == sorted(done) and done[-1] == len(data.examples)
    assert not any(places(shared.model)[each.name].module._forward_hooks for each in moving(shared))


@pytest.mark.parametrize("derivative", [[[1.0, 0.0], [float("nan"), 1.0]], [[1.0, 0.0], [1.0, 1e-4]]])
def test_measured_sides__derivatives_without_an_inverse__there_are_none(
    derivative: list[list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = SharedModel(tiny_llama())
    found = [torch.tensor(derivative, dtype=torch.float64)] * len(moving(shared))
    monkeypatch.setattr(measured_path, "_derivatives", lambda *_: found)
    assert sides_of(shared, some_words()) is None


def test_calibrate__model_that_lets_no_derivative_through__every_layer_takes_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As quantised weights do, or memory that suffices for forward passes alone."""
    model = tiny_llama()
    for part in (model.model.layers[-1].mlp, model.model.layers[-1].self_attn):
        monkeypatch.setattr(part, "forward", torch.no_grad()(part.forward))
    shared = SharedModel(model)
    assert sides_of(shared, some_words()) is None
    found = calibrate(shared, trainable_tensors(model), some_words(), 8, 8)
    assert found is not None
    assert all(np.array_equal(each.u, found.content.target) for each in found.content.tensors)


def test_calibrate__label_words__layers_have_sides_of_their_own() -> None:
    found = calibrate(SharedModel(tiny_llama()), trainable_tensors(tiny_llama()), some_words(), 8, 8)
    assert found is not None and found.settings.noise_rows == 64
    assert not any(np.array_equal(each.u, found.content.target) for each in found.content.tensors)
