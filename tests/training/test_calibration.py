"""Published bases: what a calibration finds is what the gradient or the inputs really contain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from protocol.run.manifest import TensorKind, TensorSpec
from protocol.subspace.directions import Basis
from sfnode.storage.stored_bases import UNIT_EXP
from sfnode.training.calibration import (
    ENTRY_MAX,
    forward_basis,
    gradient_basis,
    label_directions,
    leading,
    output_directions,
)
from sfnode.training.model.tensors import TensorGroup, places, trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import TaskData, read_task, row_batch
from tests.support.tiny_models import model_manifest, tiny_gpt2, tiny_llama, tiny_opt, tiny_tokenizer, write_reviews

RANK = 4
MODELS: dict[str, Callable[[], PreTrainedModel]] = {"opt": tiny_opt, "gpt2": tiny_gpt2, "llama": tiny_llama}


def opened(model: PreTrainedModel, folder: Path) -> tuple[SharedModel, TaskData]:
    manifest = model_manifest(model, [TensorGroup.LINEAR])
    return SharedModel(model), read_task(tiny_tokenizer(), manifest.task, write_reviews(folder / "reviews.jsonl"), None)


def gradient_of(shared: SharedModel, data: TaskData, tensor: TensorSpec) -> Tensor:
    parameter = shared.switch.base[tensor.name].requires_grad_(True)
    rows = row_batch(data.examples, data.pad, shared.device)
    loss = functional.cross_entropy(shared.label_logits(rows, data.label_tokens), rows.labels)
    (gradient,) = torch.autograd.grad(loss, [parameter])
    parameter.requires_grad_(False)
    return gradient


def captured(basis: Basis, gradient: Tensor) -> float:
    """Share of a matrix's energy inside the subspace."""
    assert basis.v is not None
    left, right = (torch.linalg.qr(torch.from_numpy(side).double()).Q for side in (basis.u, basis.v))
    return float((left.T @ gradient.double() @ right).square().sum() / gradient.double().square().sum())


def test_leading__matrix_of_low_rank__its_singular_vectors() -> None:
    numbers = torch.arange(40 * 3, dtype=torch.float64).view(40, 3).sin()
    matrix = numbers @ torch.arange(3 * 25, dtype=torch.float64).view(3, 25).cos()
    left, right = leading(matrix, 2)
    exact = torch.linalg.svd(matrix, full_matrices=False)
    for found, expected in ((left, exact.U[:, :2]), (right, exact.Vh[:2].T)):
        assert (found.T @ expected).abs().diagonal().tolist() == pytest.approx([1.0, 1.0], abs=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_gradient_basis__of_a_tiny_model__holds_most_of_its_gradient(name: str, tmp_path: Path) -> None:
    shared, data = opened(MODELS[name](), tmp_path)
    tensors = trainable_tensors(shared.model, list(TensorGroup))
    found = gradient_basis(shared, tensors, [data.examples], data, 2 * RANK)
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in shared.model.parameters())
    for tensor, basis in zip(tensors, found, strict=True):
        assert basis.u.shape == (tensor.rows, 2 * RANK)
        assert max(int(np.abs(side).max()) for side in (basis.u, basis.v) if side is not None) <= ENTRY_MAX
        if tensor.kind is TensorKind.MATRIX and min(tensor.rows, tensor.cols) > 2 * RANK:
            assert captured(basis, gradient_of(shared, data, tensor)) > 0.8, tensor.name


def test_gradient_basis__several_batches__of_their_mean(tmp_path: Path) -> None:
    shared, data = opened(tiny_opt(), tmp_path)
    tensors = trainable_tensors(shared.model)
    whole = gradient_basis(shared, tensors, [data.examples], data, RANK)
    halves = gradient_basis(shared, tensors, [data.examples[:8], data.examples[8:]], data, RANK)
    for one, other in zip(whole, halves, strict=True):
        known = one.u[:, 0].astype(float), other.u[:, 0].astype(float)
        assert abs(known[0] @ known[1]) == pytest.approx(np.linalg.norm(known[0]) * np.linalg.norm(known[1]), rel=0.01)


def test_gradient_basis__vector__its_first_column_is_the_gradient(tmp_path: Path) -> None:
    shared, data = opened(tiny_opt(), tmp_path)
    tensor = trainable_tensors(shared.model, [TensorGroup.BIAS])[-1]
    (basis,) = gradient_basis(shared, [tensor], [data.examples], data, RANK)
    gradient = gradient_of(shared, data, tensor).double().numpy()
    column = basis.u[:, 0].astype(float)
    assert abs(column @ gradient) > 0.98 * np.linalg.norm(column) * np.linalg.norm(gradient)
    assert set(np.unique(basis.u[:, 1:])) == {-(1 << UNIT_EXP), 1 << UNIT_EXP}


@pytest.mark.parametrize("name", MODELS)
def test_forward_basis__inputs__lie_in_its_input_side(name: str, tmp_path: Path) -> None:
    shared, data = opened(MODELS[name](), tmp_path)
    tensors = trainable_tensors(shared.model)
    place = places(shared.model)[tensors[-1].name]
    seen: list[Tensor] = []
    place.module.register_forward_pre_hook(lambda _module, arguments: seen.append(arguments[0]))
    found = forward_basis(shared, tensors, data.examples[:1], data, 16)[-1]  # one row without padding, < 16 tokens
    inputs = seen[0].reshape(-1, seen[0].shape[-1]).double()
    is_transposed = name == "gpt2"
    assert found.v is not None
    side = torch.linalg.qr(torch.from_numpy(found.u if is_transposed else found.v).double()).Q
    assert float((inputs @ side).square().sum() / inputs.square().sum()) > 0.99


def test_forward_basis__two_labels__one_output_column_and_zeros(tmp_path: Path) -> None:
    shared, data = opened(tiny_opt(), tmp_path)
    tensors = trainable_tensors(shared.model)
    found = dict(
        zip([tensor.name for tensor in tensors], forward_basis(shared, tensors, data.examples, data, RANK), strict=True)
    )
    for name in ("model.decoder.layers.1.fc2.weight", "model.decoder.layers.1.fc1.weight"):
        assert found[name].u[:, 0].any() and not found[name].u[:, 1:].any()


def test_output_directions__layer_before_a_writer__carried_back_through_its_weight(tmp_path: Path) -> None:
    shared, data = opened(tiny_opt(), tmp_path)
    known, labels = places(shared.model), label_directions(shared, data)
    first, second = (known[f"model.decoder.layers.0.{name}.weight"] for name in ("fc1", "fc2"))
    through = output_directions(first, known, labels)
    assert through is not None
    assert torch.allclose(through, second.module.weight.float().T @ labels)  # type: ignore[operator]
    assert output_directions(second, known, labels) is labels
    fused = places(tiny_gpt2())
    assert output_directions(fused["transformer.h.0.attn.c_attn.weight"], fused, labels) is None


def test_label_directions__moving_along_them__moves_the_labels_apart(tmp_path: Path) -> None:
    shared, data = opened(tiny_llama(), tmp_path)
    labels = label_directions(shared, data)
    assert labels.shape == (16, 1)
    words = (
        shared.head.weight[list(data.label_tokens)].float() * shared.model.get_parameter("model.norm.weight").float()
    )
    apart = words @ labels
    assert abs(float(apart[0] - apart[1])) == pytest.approx(float((words[0] - words[1]).norm()), rel=1e-4)
