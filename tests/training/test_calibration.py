"""Published bases: what a calibration finds is what the gradient or the inputs really contain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from protocol.errors import OperatorError
from protocol.run.manifest import TensorKind, TensorSpec, checked
from protocol.run.method import BasisKind
from protocol.schema import to_plain
from protocol.subspace.bases import Bases
from protocol.subspace.basis_file import decode_basis_untrusted, encode_basis
from protocol.subspace.directions import Basis
from sfnode.storage.stored_bases import UNIT_EXP, BasisSpec
from sfnode.training.calibration import Calibration, FoundBasis, sources
from sfnode.training.calibration.calibration import hold_back
from sfnode.training.calibration.entries import ENTRY_MAX, as_start
from sfnode.training.calibration.forward import LABELS_MAX, forward_basis, held_back
from sfnode.training.calibration.gradient import balanced, gradient_basis, leading
from sfnode.training.calibration.readout import Passed, fit_readout, uniform_weights
from sfnode.training.calibration.residual_stream import last_of, writers_of
from sfnode.training.estimator import Estimator
from sfnode.training.model.tensors import TensorGroup, trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import Example, TaskData, read_task, row_batch
from sfnode.worker_protocol import CalibrationOptions, Source
from tests.support.tiny_models import (
    VOCABULARY,
    model_manifest,
    tiny_gpt2,
    tiny_llama,
    tiny_opt,
    tiny_tokenizer,
    write_reviews,
)

RANK = 4
MODELS: dict[str, Callable[[], PreTrainedModel]] = {"opt": tiny_opt, "gpt2": tiny_gpt2, "llama": tiny_llama}


def opened(model: PreTrainedModel, folder: Path) -> tuple[SharedModel, TaskData]:
    manifest = model_manifest(model, [TensorGroup.LINEAR])
    return SharedModel(model), read_task(tiny_tokenizer(), manifest.task, write_reviews(folder / "reviews.jsonl"), None)


def of(shared: SharedModel, data: TaskData, tensors: Sequence[TensorSpec] | None = None) -> Calibration:
    tensors = trainable_tensors(shared.model) if tensors is None else tensors
    return Calibration(shared=shared, tensors=tensors, data=data)


def gradient_of(shared: SharedModel, data: TaskData, tensor: TensorSpec) -> Tensor:
    parameter = shared.switch.base[tensor.name].requires_grad_(True)
    rows = row_batch(data.examples, data.pad, shared.device)
    logits_NL = shared.label_logits(rows, data.label_tokens)
    loss = functional.cross_entropy(logits_NL + balanced(logits_NL.detach(), rows.labels), rows.labels)
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
    found = gradient_basis(of(shared, data, tensors), [data.examples], 2 * RANK)
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in shared.model.parameters())
    for tensor, basis in zip(tensors, found, strict=True):
        assert basis.u.shape == (tensor.rows, 2 * RANK)
        assert max(int(np.abs(side).max()) for side in (basis.u, basis.v) if side is not None) <= ENTRY_MAX
        if tensor.kind is TensorKind.MATRIX and min(tensor.rows, tensor.cols) > 2 * RANK:
            assert captured(basis, gradient_of(shared, data, tensor)) > 0.8, tensor.name


def test_gradient_basis__several_batches__of_their_mean(tmp_path: Path) -> None:
    shared, data = opened(tiny_opt(), tmp_path)
    tensors = trainable_tensors(shared.model)
    whole = gradient_basis(of(shared, data, tensors), [data.examples], RANK)
    halves = gradient_basis(of(shared, data, tensors), [data.examples[:8], data.examples[8:]], RANK)
    for one, other in zip(whole, halves, strict=True):
        known = one.u[:, 0].astype(float), other.u[:, 0].astype(float)
        assert abs(known[0] @ known[1]) == pytest.approx(np.linalg.norm(known[0]) * np.linalg.norm(known[1]), rel=0.01)


def test_gradient_basis__vector__its_first_column_is_the_gradient(tmp_path: Path) -> None:
    shared, data = opened(tiny_opt(), tmp_path)
    tensor = trainable_tensors(shared.model, [TensorGroup.BIAS])[-1]
    (basis,) = gradient_basis(of(shared, data, [tensor]), [data.examples], RANK)
    gradient = gradient_of(shared, data, tensor).double().numpy()
    column = basis.u[:, 0].astype(float)
    assert abs(column @ gradient) > 0.98 * np.linalg.norm(column) * np.linalg.norm(gradient)
    assert set(np.unique(basis.u[:, 1:])) == {-(1 << UNIT_EXP), 1 << UNIT_EXP}


def test_balanced__model_that_prefers_a_label__mean_prediction_has_the_frequencies() -> None:
    logits_NL = torch.randn(64, 3, generator=torch.Generator().manual_seed(0)) + torch.tensor([3.0, 0.0, -2.0])
    labels_N = torch.arange(64) % 2  # the third does not occur
    mean_L = (logits_NL + balanced(logits_NL, labels_N)).softmax(dim=1).mean(dim=0)
    assert mean_L.tolist() == pytest.approx([32 / 64.5, 32 / 64.5, 0.5 / 64.5], abs=1e-3)


def inputs_that_tell(labels_N: Tensor, size: int, seed: int) -> Tensor:
    """Noise about a large mean, and one direction of it that says the label."""
    numbers = torch.Generator().manual_seed(seed)
    noise_NI = torch.randn(len(labels_N), size, generator=numbers)
    direction_I = torch.nn.functional.normalize(torch.randn(size, generator=numbers), dim=0)
    return noise_NI + 20 + 6.0 * (labels_N - labels_N.float().mean())[:, None] * direction_I


def test_fit_readout__inputs_that_tell_the_labels_apart__new_ones_are_told_apart_as_it_says() -> None:
    """More inputs than examples: the mean is no help, and what is fitted has to be judged by others."""
    labels_N = torch.arange(240) % 2
    inputs_NI = inputs_that_tell(labels_N, 200, seed=1)
    known, new = slice(0, 120), slice(120, 240)
    readout = fit_readout(Passed(logits=torch.zeros(120, 2), labels=labels_N[known], inputs=[inputs_NI[known]]))
    (weight_IL,) = readout.weights
    right = float(((inputs_NI[new] @ weight_IL).argmax(dim=1) == labels_N[new]).float().mean())
    assert right > 0.8 and readout.accuracy == pytest.approx(right, abs=0.08)
    assert float(weight_IL.sum(dim=1).abs().max()) < 1e-6
    told_NL = (inputs_NI[known] - inputs_NI[known].mean(dim=0)) @ weight_IL
    assert float((inputs_NI[known] @ weight_IL).mean(dim=0).abs().max()) < float(told_NL.abs().mean())


def test_fit_readout__labels_that_nothing_tells__chance() -> None:
    labels_N = (torch.arange(200) * 7919 % 13) % 2
    noise_NI = torch.randn(200, 50, generator=torch.Generator().manual_seed(2))
    assert fit_readout(Passed(logits=torch.zeros(200, 2), labels=labels_N, inputs=[noise_NI])).accuracy < 0.65


def test_uniform_weights__inputs_of_unlike_sizes__one_of_any_example_old_or_new() -> None:
    generator = torch.Generator().manual_seed(4)
    sizes_N = 0.5 + 1.5 * torch.rand(300, generator=generator)
    layers = [torch.rand((300, width), generator=generator) * sizes_N[:, None] for width in (48, 24)]
    for inputs_NI in layers:
        inputs_NI[:, 0] = 3.0
    weights = uniform_weights([inputs_NI[:200] for inputs_NI in layers])
    found_N = torch.stack([inputs_NI @ weight_I for inputs_NI, weight_I in zip(layers, weights, strict=True)]).sum(0)
    assert (found_N - 1).abs().max() < 0.1
    mean_I = layers[0].mean(dim=0)
    assert (layers[0] @ mean_I / mean_I.square().sum()).std() > 0.2, "along the mean they differ"


def test_fit_readout__three_labels__the_layers_tell_them_together() -> None:
    labels_N = torch.arange(150) % 3
    layers = [inputs_that_tell((labels_N == label).long(), 30, seed=label) for label in (0, 1)]
    readout = fit_readout(Passed(logits=torch.zeros(150, 3), labels=labels_N, inputs=layers))
    assert readout.accuracy > 0.8 and [weight.shape for weight in readout.weights] == [(30, 3), (30, 3)]


def test_as_start__products_of_different_sizes__are_what_was_asked_for() -> None:
    tensors = [
        TensorSpec(name="a", kind=TensorKind.MATRIX, rows=20, cols=30),
        TensorSpec(name="b", kind=TensorKind.VECTOR, rows=20, cols=0),
        TensorSpec(name="c", kind=TensorKind.MATRIX, rows=4, cols=5),
        TensorSpec(name="d", kind=TensorKind.MATRIX, rows=20, cols=30),
    ]
    numbers = torch.Generator().manual_seed(0)
    wide, narrow = (torch.randn(size, 2, generator=numbers) for size in (20, 30))
    moved = {0: (wide * 1e-3, narrow), 3: (wide * 3e-4, narrow.flip(0))}
    start = as_start(tensors, moved)
    assert start.products[1] is None and start.products[2] is not None and not start.products[2].u.any()
    for index, (left, right) in moved.items():
        product = start.products[index]
        assert product is not None and product.v is not None
        u, v = (torch.from_numpy(side).float() for side in (product.u, product.v))
        made = 2.0 ** (start.exp - 2 * UNIT_EXP) * u @ v.T
        assert float((made - left @ right.T).norm() / (left @ right.T).norm()) < 0.03


@pytest.mark.parametrize("name", MODELS)
def test_forward_basis__start_in_the_weights__labels_are_told_as_it_says(name: str, tmp_path: Path) -> None:
    """The start is fitted with hooks at work; the run puts it into the weights."""
    shared, data = opened(MODELS[name](), tmp_path)
    many = replace(data, examples=data.examples * 6)  # each is among the held-back ones and among the others
    found = forward_basis(of(shared, many), 1)
    unmoved, session = sessions(shared, found, data)
    before, after = (each.evaluate(len(data.examples)) for each in (unmoved, session))
    assert after.loss < before.loss - 0.05
    alone = session.evaluate(len(data.examples), is_alone=True)
    assert alone == before and session.evaluate(len(data.examples)) == after  # two results, kept apart
    assert session.estimate(1, 0).loss < unmoved.estimate(1, 0).loss - 0.05
    assert found.of_start is not None and found.of_start.accuracy is not None
    assert after.accuracy >= found.of_start.accuracy - 0.15


def sessions(shared: SharedModel, found: FoundBasis, data: TaskData) -> tuple[Estimator, Estimator]:
    """At the model as it is, and where a run with this basis begins."""
    plain = model_manifest(shared.model, [TensorGroup.LINEAR])
    file = encode_basis(1, found.content)
    spec = BasisSpec.of(file)
    method = replace(
        plain.method,
        rank=1,
        clip=1,
        basis=BasisKind.PUBLISHED,
        basis_sha256=spec.sha256,
        basis_unit_exp=spec.unit_exp,
        basis_max=spec.entry_max,
        start_rank=spec.start_rank,
    )
    manifest = checked(to_plain(replace(plain, method=method), as_rows=False))
    data = replace(data, evaluation_examples=data.examples)
    bases = Bases(manifest, decode_basis_untrusted(manifest, file))
    return Estimator(shared, Bases(plain), data), Estimator(shared, bases, data)


def labelled_by_a_word(labels: int, count: int) -> tuple[Example, ...]:
    """Prompts whose last word says the label, in all lengths."""
    return tuple(
        Example(tokens=(3,) * (1 + number % 5) + (20 + number % labels,), label=number % labels)
        for number in range(count)
    )


@pytest.mark.parametrize("name", MODELS)
def test_forward_basis__more_labels_than_layers__the_start_tells_them_apart(name: str) -> None:
    """Four layers write to the stream of these models."""
    shared = SharedModel(MODELS[name]())
    data = TaskData(label_tokens=tuple(range(3, 12)), examples=labelled_by_a_word(9, 180))
    found = forward_basis(of(shared, data), 1)
    unmoved, session = sessions(shared, found, data)
    before, after = (each.evaluate(len(data.examples)) for each in (unmoved, session))
    assert after.accuracy > before.accuracy + 0.3 and after.loss < before.loss - 0.5, (before, after)
    assert found.start is not None and {each.u.shape[1] for each in found.start.products if each is not None} == {8}


@pytest.mark.parametrize("name", MODELS)
def test_forward_basis__two_labels__two_columns_and_a_start(name: str, tmp_path: Path) -> None:
    shared, data = opened(MODELS[name](), tmp_path)
    tensors = trainable_tensors(shared.model)
    found = forward_basis(of(shared, data, tensors), 2)
    live = [index for index, basis in enumerate(found.bases) if basis.u.any()]
    assert len(live) == 2 and found.rank == 2
    assert all(basis.v is not None and basis.u[:, 0].any() == basis.v[:, 0].any() for basis in found.bases)
    assert not any(basis.u[:, 1:].any() for basis in found.bases)
    assert (
        found.start is not None and sum(each is not None and bool(each.u.any()) for each in found.start.products) == 1
    )
    assert found.learning_rate is not None and found.epsilon_exp is not None and found.of_start is not None
    assert -30 <= found.epsilon_exp <= 0 and 0 <= (found.of_start.accuracy or 0) <= 1


def test_forward_basis__held_back_examples_say_the_contrary__no_start_and_columns_all_the_same() -> None:
    shared = SharedModel(tiny_opt())
    data = TaskData(label_tokens=(3, 4))
    told = sorted(labelled_by_a_word(2, 120), key=lambda example: example.width)  # as `forward_basis` takes them
    held = set(held_back(len(told))[1])
    lying = [replace(each, label=1 - each.label) if number in held else each for number, each in enumerate(told)]
    (honest, found) = (forward_basis(of(shared, data).only(each), 1) for each in (told, lying))
    assert honest.start is not None and honest.of_start is not None and honest.of_start.accuracy == 1.0
    assert found.start is None and found.of_start is None and found.of_model is not None
    assert sum(basis.u.any() for basis in found.bases) == 2
    assert found.learning_rate is not None and 0 < found.learning_rate <= 1


@pytest.mark.parametrize("is_share_out", [True, False])
@pytest.mark.parametrize("count", [0, 3, 4, 16, 67, 300, 800, 1_536])
def test_hold_back__items_in_any_order__those_that_judge_lie_evenly_over_all(count: int, is_share_out: bool) -> None:
    """The first 64 of a quarter were the shortest: a start of 74 % was chosen where 81 % were to be had."""
    kept, held = hold_back(range(count), most=64, share=4, is_share_out=is_share_out)
    assert not set(kept) & set(held) and held == sorted(held) and kept == sorted(kept)
    left_out = count // 4 if is_share_out else min(64, count // 4)
    every = max(1, -(-left_out // 64))  # of those left out, one judges
    assert (len(kept), len(held)) == (count - left_out, -(-left_out // every)) and len(held) <= 64
    assert count < 4 or sum(held) / len(held) == pytest.approx(count / 2, rel=0.1, abs=2)


def test_forward_basis__examples_of_one_label__says_so(tmp_path: Path) -> None:
    shared, data = opened(tiny_opt(), tmp_path)
    alike = [example for example in data.examples if example.label == data.examples[0].label]
    with pytest.raises(OperatorError, match="same label"):
        forward_basis(of(shared, data).only(alike * 16), 1)


def test_forward_basis__few_examples__says_how_many_it_needs(tmp_path: Path) -> None:
    shared, data = opened(tiny_opt(), tmp_path)
    with pytest.raises(OperatorError, match="at least 8 examples, and there are 6"):
        forward_basis(of(shared, data).only(data.examples[:6]), 1)


def test_last_of__rows_flattened_or_not__the_same_inputs() -> None:
    x_NTI = torch.arange(3 * 4 * 2, dtype=torch.float32).view(3, 4, 2)
    last_N = torch.tensor([3, 0, 2])
    assert (
        last_of(x_NTI, last_N).tolist() == last_of(x_NTI.flatten(0, 1), last_N).tolist() == [[6, 7], [8, 9], [20, 21]]
    )


def test_writers_of__attention_whose_queries_have_the_streams_width__output_projection_alone() -> None:
    for model, names in (
        (tiny_opt(), ("self_attn.out_proj", "fc2")),
        (tiny_gpt2(), ("attn.c_proj", "mlp.c_proj")),
        (tiny_llama(), ("self_attn.o_proj", "mlp.down_proj")),
    ):
        found = writers_of(of(SharedModel(model), TaskData(label_tokens=())))
        assert len(found) == 4
        assert all(place.name.removesuffix(".weight").endswith(names) for _, place in found)


def test_basis_of__file_sorted_by_label__examples_of_all_labels(tmp_path: Path) -> None:
    shared, data = opened(tiny_opt(), tmp_path)
    ordered = replace(data, examples=tuple(sorted(data.examples * 8, key=lambda example: example.label)))
    found = sources.new_basis(of(shared, ordered), CalibrationOptions(data="", examples=16), None)
    assert found.of_start is not None


def test_basis_of__no_layer_that_writes_to_the_stream_is_trained__by_a_short_run_or_says_so(tmp_path: Path) -> None:
    shared, data = opened(tiny_opt(), tmp_path)
    inner = [tensor for tensor in trainable_tensors(shared.model) if tensor.name.endswith("fc1.weight")]
    found = sources.new_basis(of(shared, data, inner), CalibrationOptions(data=""), None)
    assert found.start is not None and found.of_start is not None
    with pytest.raises(OperatorError, match="residual stream; train the linear layers too"):
        sources.new_basis(of(shared, data, inner), CalibrationOptions(data="", source=Source.FORWARD), None)


def test_basis_of__more_labels_than_a_start_has_columns_for__by_a_short_run(tmp_path: Path) -> None:
    shared, data = opened(tiny_opt(), tmp_path)
    many = replace(data, label_tokens=tuple(number % VOCABULARY for number in range(LABELS_MAX + 1)))
    with pytest.raises(OperatorError, match="at most 129 labels apart, and the task has 130; use --source trajectory"):
        sources.new_basis(of(shared, many), CalibrationOptions(data="", source=Source.FORWARD), 1)
    found = sources.new_basis(of(shared, many), CalibrationOptions(data=""), None)
    assert found.of_model is not None and found.rank == 1 and found.start is not None


@pytest.mark.parametrize("source", [Source.FORWARD, Source.GRADIENT, Source.TRAJECTORY])
def test_basis_of__listener__hears_of_every_pass_and_how_many_there_will_be(source: Source, tmp_path: Path) -> None:
    shared, data = opened(tiny_opt(), tmp_path)
    told: list[tuple[int, int]] = []
    options = CalibrationOptions(data="", source=source, examples=16)
    found = sources.new_basis(of(shared, data), options, None, lambda done, total: told.append((done, total)))
    dones = [done for done, _ in told]
    assert dones == sorted(set(dones))
    assert told[-1][0] <= told[-1][1] <= 1.2 * found.rows  # a small model has fewer trials
    assert not shared.model.base_model._forward_pre_hooks  # nobody counts afterwards
