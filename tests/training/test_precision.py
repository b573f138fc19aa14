"""Nodes of different precision: gradients that agree, int8 weights against dense ones, and one ledger for all."""

from __future__ import annotations

import functools
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from protocol.crypto.hashing import seed_of
from protocol.errors import OperatorError
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import Manifest
from protocol.run.method import CoreKind, ScheduleKind
from protocol.state.coefficients import Coefficients
from protocol.subspace.basis_file import Bases
from sfnode.children.child_program import Program
from sfnode.demo import model_folder
from sfnode.run.manifest_builder import MethodOptions
from sfnode.training.estimator import Estimator
from sfnode.training.model import quantised
from sfnode.training.model.folding import dequantised, is_quantised
from sfnode.training.model.loading import output_embedding
from sfnode.training.model.quantised import (
    Correction,
    QuantisedLinear,
    closed_weights,
    load_in,
)
from sfnode.training.model.tensor_groups import TensorGroup
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import TaskData, read_task
from tests.support.demo_run import AUTHORS, demo_run
from tests.support.fork_server import start_child
from tests.support.quantised_models import HAS_TORCHAO, quantise_weights
from tests.support.tiny_models import model_manifest, tiny_tokenizer, write_reviews
from tests.training.brute_force import (
    EPOCHS,
    SEED,
    STEP,
    dense_gradients,
    dense_weights,
    made_up_bases,
    some_coefficients,
    unquantised,
)
from tests.training.tiny_architectures import tiny_model

pytestmark = pytest.mark.usefixtures("one_thread")

CPU: Final = torch.device("cpu")
needs_torchao = pytest.mark.skipif(not HAS_TORCHAO, reason="torchao is not installed: pip install -e '.[quantised]'")
QUANTISED_TOO: Final = ["bf16", "fp16", *(pytest.param(each, marks=needs_torchao) for each in ("int8", "int8-fp32"))]


def int8_model(name: str) -> PreTrainedModel:
    """Weights in int8, all else in fp32."""
    model: PreTrainedModel = cast(Any, tiny_model(name)).float()
    quantise_weights(model, "int8-fp32")
    return model


def dense_copy(model: PreTrainedModel, name: str) -> PreTrainedModel:
    """A model of plain double precision with the values of the quantised ``model``."""
    plain = tiny_model(name)
    values = {key: dequantised(weight).double() for key, weight in model.named_parameters()}
    with torch.no_grad():
        for key, parameter in plain.named_parameters():
            parameter.copy_(values[key])
    return plain


def tiny_session(model: PreTrainedModel, manifest: Manifest, folder: Path) -> Estimator:
    reviews = write_reviews(folder / "reviews.jsonl")
    return Estimator(SharedModel(model), Bases(manifest), read_task(tiny_tokenizer(), manifest.task, reviews, reviews))


@functools.cache
def demo_data() -> TaskData:
    """All rows of the demo."""
    return demo_run(MethodOptions(), 1).session.data


def demo_session(precision: str, manifest: Manifest) -> Estimator:
    return Estimator(SharedModel(load_in(precision, model_folder(), CPU)), Bases(manifest), demo_data())


def gradients(session: Estimator) -> NDArray[np.float64]:
    """Along twelve seeds' directions."""
    return np.array([unquantised(session, seed, step=0) for seed in range(12)]).ravel()


@pytest.fixture(scope="module")
def exact() -> tuple[Manifest, NDArray[np.float64]]:
    """A run, and the gradients in fp32."""
    # epsilon 2^-8; at 2^-10 the noise of bf16 activations is larger: correlation 0.95 (docs/models.md)
    run = demo_run(MethodOptions(core=CoreKind.RADEMACHER, epsilon_exp=-8), 100)
    return run.manifest, gradients(run.session)


@pytest.mark.parametrize("precision", QUANTISED_TOO)
def test_precision__same_rows_and_directions__gradients_follow_those_of_fp32(
    precision: str, exact: tuple[Manifest, NDArray[np.float64]]
) -> None:
    manifest, expected = exact
    found = gradients(demo_session(precision, manifest))
    assert np.corrcoef(expected, found)[0, 1] > 0.99
    assert not np.array_equal(expected, found)  # it is another precision


@needs_torchao
@pytest.mark.parametrize("name", ["opt", "llama", "qwen3", "gemma2", "phi3"])
def test_int8__closed_epochs_in_every_group__equals_the_dense_weights_of_the_same_values(
    name: str, tmp_path: Path
) -> None:
    model = int8_model(name)
    plain = dense_copy(model, name)
    manifest = model_manifest(
        model, list(TensorGroup), task={"max_tokens": 32}, core="rademacher", directions=4, rank=2, alpha_exp=-16,
        epsilon_exp=-6,
    )  # fmt: skip
    session = tiny_session(model, manifest, tmp_path)
    for epoch in EPOCHS:
        session.set_coefficients(epoch, some_coefficients(manifest, epoch))
    weights = closed_weights(Bases(manifest), {0: some_coefficients(manifest, 0)}, dict(model.named_parameters()))
    assert any(isinstance(weight, Correction) for weight in weights.values())
    found = unquantised(session, SEED, STEP)
    expected = dense_gradients(plain, Bases(manifest), session)
    assert found == pytest.approx(expected, rel=2e-3, abs=2e-3 * max(map(abs, expected)))


@needs_torchao
def test_int8__loaded__is_a_quarter_of_fp32_where_it_counts() -> None:
    model = load_in("int8", model_folder(), CPU)
    head = output_embedding(model)
    layers = [module for module in model.modules() if isinstance(module, nn.Linear) and module is not head]
    assert all(isinstance(layer, QuantisedLinear) and is_quantised(layer.weight) for layer in layers)
    assert not is_quantised(head.weight)
    assert model.dtype == torch.bfloat16
    assert load_in("int8-fp32", model_folder(), CPU).dtype == torch.float32
    held = sum(stored_bytes(layer.weight) for layer in layers)
    assert held < 0.28 * 4 * sum(layer.weight.numel() for layer in layers)


def stored_bytes(weight: Tensor) -> int:
    inner: Any = weight
    return sum(part.numel() * part.element_size() for part in (inner.qdata, inner.scale))


@needs_torchao
def test_int8__correction__is_kept_while_it_is_smaller_and_is_the_fold_rounded_once() -> None:
    model = int8_model("llama")
    manifest = model_manifest(model, [TensorGroup.LINEAR], rank=2, alpha_exp=-16, epoch_steps=4)
    bases, base = Bases(manifest), dict(model.named_parameters())
    name = "model.layers.0.mlp.up_proj.weight"  # [24, 16]: rank 2 per epoch, 9.6 times that is the whole
    dense = dense_weights(bases, own_dequantised(base), range(8))
    for count, is_correction in ((4, True), (5, False), (8, False)):
        epochs = {epoch: some_coefficients(manifest, epoch) for epoch in range(count)}
        weight = closed_weights(bases, epochs, base)[name]
        assert isinstance(weight, Correction) is is_correction
    assert isinstance(weight, Tensor)
    assert torch.equal(weight, dense[name].float())
    one = closed_weights(bases, {0: some_coefficients(manifest, 0)}, base)[name]
    assert isinstance(one, Correction)
    change = dense_weights(bases, own_dequantised(base), [0])[name] - own_dequantised(base)[name]
    error = (one.left.double() @ one.right.double().t() - change).abs().max()
    assert error < 1e-6 * change.abs().max()


def own_dequantised(base: dict[str, Any]) -> dict[str, Tensor]:
    return {name: dequantised(weight).double() for name, weight in base.items()}


@needs_torchao
def test_int8__dense_core__many_steps_are_one_correction() -> None:
    model = int8_model("llama")
    bases = made_up_bases(model_manifest(model, [TensorGroup.LINEAR], rank=4, alpha_exp=-24))
    base = dict(model.named_parameters())
    name = "model.layers.0.self_attn.k_proj.weight"
    epochs = {epoch: some_coefficients(bases.manifest, epoch) for epoch in range(8)}
    found = closed_weights(bases, epochs, base)[name]
    assert isinstance(found, Correction)
    assert found.right.shape == (16, 4)
    change = dense_weights(bases, own_dequantised(base), range(8))[name] - own_dequantised(base)[name]
    error = (found.left.double() @ found.right.double().t() - change).abs().max()
    assert error < 1e-6 * change.abs().max()


@needs_torchao
def test_int8__after_an_estimate__weights_and_corrections_are_as_before(tmp_path: Path) -> None:
    model = int8_model("llama")
    manifest = model_manifest(model, [TensorGroup.LINEAR], directions=4, rank=2, alpha_exp=-16)
    session = tiny_session(model, manifest, tmp_path)
    before = unquantised(session, SEED, STEP), session.evaluate()
    session.set_coefficients(0, some_coefficients(manifest, 0))
    assert unquantised(session, SEED, STEP) != before[0]
    assert session.evaluate() != before[1]
    session.set_coefficients(0, np.zeros_like(some_coefficients(manifest, 0)))
    assert (unquantised(session, SEED, STEP), session.evaluate()) == before


@needs_torchao
def test_mixed_run__fp32_bf16_and_int8__share_one_state_and_all_learn() -> None:
    steps = 20
    # a few of them in a second epoch
    choice = MethodOptions(learning_rate=5e-4, schedule=ScheduleKind.CONSTANT, epoch_steps=15)
    manifest = demo_run(choice, steps).manifest
    codec = EnvelopeCodec(manifest)
    nodes = [(demo_session(precision, manifest), Coefficients(manifest)) for precision in ("fp32", "bf16", "int8")]
    before = [session.evaluate() for session, _ in nodes]
    for step in range(steps):
        sent = [
            codec.seal(author, step, session.estimate(seed_of(manifest.run_id, author.author, step), step).scalars)
            for author, (session, _) in zip(AUTHORS[:3], nodes, strict=True)
        ]
        for turn, (session, coefficients) in enumerate(nodes):
            coefficients.add(sent[turn:] + sent[:turn])  # to each in another order
            session.set_coefficients(step // 15, coefficients.flat(step // 15))
    assert len({coefficients.digest() for _, coefficients in nodes}) == 1
    assert nodes[0][1].epochs() == (0, 1)
    after = [session.evaluate() for session, _ in nodes]
    assert all(end.accuracy >= start.accuracy + 0.15 for start, end in zip(before, after, strict=True))
    assert max(end.loss for end in after) < min(start.loss for start in before)
    assert max(end.loss for end in after) - min(end.loss for end in after) < 0.05


def test_precision__unknown_name__is_refused(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="dtype 'int3': allowed are fp32, bf16, fp16, int8, int8-fp32, int4"):
        load_in("int3", tmp_path, CPU)


def test_precision__torchao_is_not_installed__is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantised, "_LIBRARY", "no_such_library")
    with pytest.raises(
        OperatorError, match=r"dtype 'int8' needs torchao 0.18, .*deploy/install\.py --extras train,quantised"
    ):
        load_in("int8", model_folder(), CPU)


@needs_torchao
def test_precision__torchao_that_has_int4_elsewhere__is_refused_in_the_same_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quantised, "_INT4_ON_CPU", "torchao.moved")
    with pytest.raises(OperatorError, match=r"dtype 'int4' needs torchao 0\.18, .*deploy/install\.py"):
        load_in("int4", model_folder(), CPU)


@needs_torchao
def test_precision__int4_where_no_product_for_it_is__is_refused() -> None:
    with pytest.raises(OperatorError, match="dtype 'int4' works on CPUs and CUDA only: use --dtype int8"):
        load_in("int4", model_folder(), torch.device("mps"))


@needs_torchao
def test_int4__on_a_cpu__computes_with_four_bit_values_in_five_eighths_of_a_byte() -> None:
    run = demo_run(MethodOptions(core=CoreKind.RADEMACHER, epsilon_exp=-7), 100)
    model, data = load_in("int4", model_folder(), CPU), run.session.data
    for layer in (module for module in model.modules() if isinstance(module, QuantisedLinear)):
        inner: Any = layer.weight
        held = sum(part.numel() * part.element_size() for part in (inner.qdata, inner.scale_and_zero))
        assert held == 0.625 * layer.weight.numel()
        assert len(set(dequantised(layer.weight)[0, :32].tolist())) <= 16
    expected, found = (
        gradients(Estimator(SharedModel(each), Bases(run.manifest), data))
        for each in (dense_copy_of_demo(model), model)
    )
    assert np.corrcoef(expected, found)[0, 1] > 0.99


def dense_copy_of_demo(model: PreTrainedModel) -> PreTrainedModel:
    """The embedded model in fp32 with the values of the quantised ``model``."""
    plain = load_in("fp32", model_folder(), CPU)
    values = {name: dequantised(weight).float() for name, weight in model.named_parameters()}
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            parameter.copy_(values[name])
    return plain


@needs_torchao
def test_precision__no_layer_to_quantise__is_refused() -> None:
    with pytest.raises(OperatorError, match="GPT2LMHeadModel has no linear layer that can be quantised"):
        quantise_weights(tiny_model("gpt2"), "int8")


@needs_torchao
def test_quantising__library_is_imported__says_nothing_to_the_operator() -> None:
    """A fault once: five lines of warnings about kernels for cards that the machine did not have."""
    with TemporaryFile() as errors:
        process = start_child(Program(module="tests.support.import_torchao"), stderr=errors.fileno())
        assert process.stdin is not None and process.stdout is not None
        with process.stdin, process.stdout:
            assert process.wait(100) == 0
        errors.seek(0)
        assert errors.read() == b""
