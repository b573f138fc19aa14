"""Every kind of causal language model: estimate and view against dense weights, real loading; what is refused, and how.

All trainable tensors at once: one term that is missing, transposed or scaled wrongly changes the loss.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any, Final, cast

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from protocol.errors import OperatorError
from protocol.run.manifest import Manifest, TensorKind, TensorSpec
from protocol.subspace.basis_file import Bases
from sfnode.model_files.resolve import resolve_model
from sfnode.training.estimator import Estimator
from sfnode.training.model.folding import fold_weights
from sfnode.training.model.loading import load_causal_lm
from sfnode.training.model.perturbed import PassContext
from sfnode.training.model.tensor_groups import TensorGroup, attach, left_out, places, trainable_tensors
from sfnode.training.model.weights_digest import check_model, load_described
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import read_task
from tests.support.tiny_models import model_manifest, tiny_tokenizer, write_reviews
from tests.training.brute_force import (
    EPOCHS,
    SEED,
    STEP,
    dense_gradients,
    dense_loss,
    dense_weights,
    own_weights,
    some_coefficients,
    unquantised,
)
from tests.training.tiny_architectures import ARCHITECTURES, tiny_model

CPU: Final = torch.device("cpu")
REFUSED: Final = ("bert",)
PARTLY: Final = {  # what is left out of them
    "phi": r"lm_head\.bias$",
    "cohere": r"norm\.weight$",  # a norm of its own kind, neither LayerNorm nor RMSNorm
    "mixtral": r"mlp\.gate\.weight$|experts\.",
    "mamba": r"mixer\.(A_log|D|conv1d\.\w+|dt_proj\.\w+)$",
    "bart": r"encoder_attn",
}
TRAINED: Final = [name for name in ARCHITECTURES if name not in REFUSED]


def whole_manifest(model: PreTrainedModel) -> Manifest:
    return model_manifest(
        model, list(TensorGroup), task={"max_tokens": 32}, core="rademacher", directions=4, rank=4, alpha_exp=-20,
        epsilon_exp=-8,
    )  # fmt: skip


def open_session(model: PreTrainedModel, manifest: Manifest, folder: Path) -> Estimator:
    reviews = write_reviews(folder / "reviews.jsonl")
    session = Estimator(
        SharedModel(model), Bases(manifest), read_task(tiny_tokenizer(), manifest.task, reviews, reviews)
    )
    for epoch in EPOCHS:
        session.set_coefficients(epoch, some_coefficients(manifest, epoch))
    return session


@pytest.mark.parametrize("name", TRAINED)
def test_architecture__all_groups__estimate_equals_finite_difference(name: str, tmp_path: Path) -> None:
    model = tiny_model(name)
    plain = copy.deepcopy(model)
    manifest = whole_manifest(model)
    session = open_session(model, manifest, tmp_path)
    found = unquantised(session, SEED, STEP)
    expected = dense_gradients(plain, Bases(manifest), session)
    assert min(map(abs, expected)) > 1e-3  # the case is not a trivial one
    # Some norms and embeddings compute in single precision whatever the model's
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-4 * max(map(abs, expected)))


@pytest.mark.parametrize("name", TRAINED)
def test_architecture__all_groups__view_is_the_dense_weights(name: str, tmp_path: Path) -> None:
    model = tiny_model(name)
    plain = copy.deepcopy(model)
    manifest = whole_manifest(model)
    bases = Bases(manifest)
    base = {key: weight.float() for key, weight in own_weights(model).items()}
    epochs = {epoch: some_coefficients(manifest, epoch) for epoch in EPOCHS}
    folded = fold_weights(bases, epochs, base)
    dense = dense_weights(bases, base)
    assert set(folded) == {tensor.name for tensor in manifest.tensors}
    assert all(torch.equal(weight, dense[key].float()) for key, weight in folded.items())  # fp64 is exact here

    session = open_session(model, manifest, tmp_path)
    examples, words = session.data.evaluation_examples, session.data.label_tokens
    expected = dense_loss(plain, dense_weights(bases, own_weights(plain)), examples, words)
    assert session.evaluate().loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", TRAINED)
def test_architecture__all_groups__are_all_tensors_but_the_refused(name: str) -> None:
    model = tiny_model(name)
    listed = [tensor.name for tensor in trainable_tensors(model, list(TensorGroup))]
    refused = left_out(model)
    everything = [key for key, _ in model.named_parameters()]
    assert listed == [key for key in everything if key not in refused]
    assert set(refused) == {key for key in everything if name in PARTLY and re.search(PARTLY[name], key)}
    assert all(key in text and "cannot be trained" in text for key, text in refused.items())


@pytest.mark.parametrize("name", TRAINED)
def test_architecture__saved_and_loaded__trains_alike(name: str, tmp_path: Path) -> None:
    model = cast(Any, tiny_model(name)).float()
    model.save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    folder = resolve_model(str(tmp_path / "model"))
    described, spec = load_described(folder)
    check_model(folder.path, spec)
    manifest = whole_manifest(model)
    loaded = load_causal_lm(folder.path, CPU, torch.float32)
    assert_same_weights(described, loaded)
    assert trainable_tensors(loaded, list(TensorGroup)) == manifest.tensors
    found = unquantised(open_session(loaded, manifest, tmp_path), SEED, STEP)
    assert found == unquantised(open_session(model, manifest, tmp_path), SEED, STEP)


def assert_same_weights(one: PreTrainedModel, other: PreTrainedModel) -> None:
    """Parameters and buffers, tied alike, none of which wants a gradient."""
    names = [name for name, _ in one.named_parameters()]
    assert names == [name for name, _ in other.named_parameters()]
    held = dict(other.named_parameters()) | dict(other.named_buffers())
    assert all(torch.equal(tensor, held.pop(name)) for name, tensor in (*one.named_parameters(), *one.named_buffers()))
    assert not held and not any(parameter.requires_grad for parameter in one.parameters())


def a_matrix(name: str, rows: int, cols: int) -> TensorSpec:
    return TensorSpec(name=name, kind=TensorKind.MATRIX, rows=rows, cols=cols)


@pytest.mark.parametrize(
    ("name", "tensor", "reason"),
    [
        (
            "mixtral",
            a_matrix("model.layers.0.mlp.experts.gate_up_proj", 48, 16),
            r"its layer \(MixtralExperts\) is not supported",
        ),
        ("mixtral", a_matrix("model.layers.0.mlp.gate.weight", 4, 16), r"its layer \(MixtralTopKRouter\)"),
        (
            "mamba",
            a_matrix("backbone.layers.0.mixer.dt_proj.weight", 32, 1),
            r"its layer \(Linear\) without calling it",
        ),
        ("mamba", a_matrix("backbone.layers.0.mixer.A_log", 32, 4), r"its layer \(MambaMixer\) is not supported"),
        ("mamba", a_matrix("backbone.layers.0.mixer.conv1d.weight", 32, 4), r"its layer \(Conv1d\) is not supported"),
        ("bart", a_matrix("model.decoder.layers.0.encoder_attn.k_proj.weight", 16, 16), "without calling it"),
        ("phi", TensorSpec(name="lm_head.bias", kind=TensorKind.VECTOR, rows=48, cols=0), "belongs to the head"),
    ],
)
def test_architecture__tensor_that_cannot_be_trained__is_refused_by_name(
    name: str, tensor: TensorSpec, reason: str
) -> None:
    with pytest.raises(OperatorError, match=f"{tensor.name} cannot be trained: .*{reason}"):
        attach(tiny_model(name), [tensor], PassContext())


class Pooled(nn.Module):
    """Sees the mean of each row's tokens only."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.inner(x.mean(dim=1, keepdim=True))).expand_as(x)


class SomeTokens(Pooled):
    """An expert of one token in five."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y[:, ::5] = self.inner(x[:, ::5])
        return y


@pytest.mark.parametrize("kind", [Pooled, SomeTokens])
def test_architecture__layer_that_sees_some_tokens__is_refused_before_the_first_step(kind: type[Pooled]) -> None:
    model = tiny_model("llama")
    layer = cast(Any, model).model.layers[1]
    whole = trainable_tensors(model)
    layer.mlp = kind(layer.mlp)
    assert {tensor.name for tensor in whole} - {tensor.name for tensor in trainable_tensors(model)} == {
        f"model.layers.1.mlp.{part}.weight" for part in ("gate_proj", "up_proj", "down_proj")
    }
    tensor = a_matrix("model.layers.1.mlp.inner.up_proj.weight", 24, 16)
    with pytest.raises(
        OperatorError, match=rf"{tensor.name} cannot be trained: its layer sees .*\(experts or pooling\)"
    ):
        attach(model, [tensor], PassContext())


def test_architecture__weight_packed_by_another_library__is_refused_by_name() -> None:
    model = tiny_model("llama")
    packed = cast(Any, model).model.layers[0].mlp.up_proj
    packed.weight = nn.Parameter(torch.zeros(192, 1, dtype=torch.uint8), requires_grad=False)
    name = "model.layers.0.mlp.up_proj.weight"
    assert name not in places(model)
    with pytest.raises(
        OperatorError, match=rf"tensor {name} cannot be trained: .* its layer \(Linear\) is not supported"
    ):
        attach(model, [a_matrix(name, 192, 1)], PassContext())


def test_architecture__weight_of_two_layers__is_left_out_since_only_one_would_move() -> None:
    model = tiny_model("llama")
    first, second = cast(Any, model).model.layers
    second.mlp.up_proj.weight = first.mlp.up_proj.weight
    name = "model.layers.0.mlp.up_proj.weight"
    assert name not in {tensor.name for tensor in trainable_tensors(model)}
    assert "it is tied to another" in left_out(model)[name]


class PartByPart(nn.Linear):
    """Multiplies each half of its input with weights of its own."""

    def forward(self, x: Tensor) -> Tensor:
        halves = x.view(*x.shape[:-1], 2, -1)
        return torch.einsum("...gi,goi->...go", halves, self.weight.view(2, self.out_features, -1)).sum(-2)[..., None]


def test_architecture__linear_layer_with_a_product_for_each_part__is_left_out() -> None:
    model = tiny_model("llama")
    layer = cast(Any, model).model.layers[0].mlp
    parts = PartByPart(layer.up_proj.in_features, layer.up_proj.out_features, bias=False)
    layer.up_proj = nn.Sequential(parts.double(), nn.Flatten(-2))
    name = "model.layers.0.mlp.up_proj.0.weight"
    assert "in a way that is not supported" in left_out(model)[name]


def test_architecture__head_of_several_layers__is_refused() -> None:
    with pytest.raises(OperatorError, match="BertLMHeadModel computes its logits in a way that is not supported"):
        SharedModel(tiny_model("bert"))


def test_architecture__logit_cap_that_is_not_known__is_refused() -> None:
    model = tiny_model("gemma2")
    model.config.final_logit_softcapping = None  # as if the configuration called it by another name
    capped = cast(Any, model).lm_head
    capped.register_forward_hook(lambda module, inputs, output: (output / 2.0).tanh() * 2.0)
    with pytest.raises(OperatorError, match="Gemma2ForCausalLM computes its logits in a way that is not supported"):
        SharedModel(model)


def test_architecture__encoder_and_decoder__is_refused_at_loading(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5", "architectures": ["T5Model"]}), "utf-8")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(
        OperatorError,
        match=r"config\.json: T5 is no causal language model",
    ):
        load_causal_lm(tmp_path, CPU, torch.float32)
