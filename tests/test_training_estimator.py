"""The estimator against brute force: fp64 weights written out, one plain forward pass per direction and sign."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from protocol.coefficients import CoefficientLayout, Coefficients, view_exp
from protocol.envelope import Envelope
from protocol.errors import NumericError, OperatorError
from protocol.hashing import Author
from protocol.manifest import Manifest, TensorKind
from protocol.quantise import quantise
from protocol.sampling import example_indices
from protocol.subspace import basis, direction_factors, scale_exp
from sfnode.training.models import output_embedding
from sfnode.training.session import Session, SharedModel, add_own
from sfnode.training.tasks import Example, TaskData, read_task
from sfnode.training.tensors import TensorGroup
from tiny_models import model_manifest, tiny_gpt2, tiny_llama, tiny_opt, tiny_tokenizer, write_reviews

STEP = 20  # in epoch 1 of 16 steps; epochs 0 and 2 are closed
SEED = 0x5EED

MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "opt": tiny_opt,
    "gpt2": tiny_gpt2,
    "llama": tiny_llama,
    "llama-tied": lambda: tiny_llama(tied=True),
}
CASES = [
    (name, group, core) for name in MODELS for group in [*TensorGroup, None] for core in ("canonical", "rademacher")
]


def some_coefficients(manifest: Manifest, epoch: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    size = CoefficientLayout(manifest).size
    return ((np.arange(size) * 7919 + 31 * epoch) % 4001 - 2000).astype(np.int64)


def weights_brute_force(manifest: Manifest, base: dict[str, Tensor], epochs: tuple[int, ...]) -> dict[str, Tensor]:
    """W0 - sum of 2^k U C V^T, one dense product after the other."""
    layout = CoefficientLayout(manifest)
    weights = {name: weight.clone() for name, weight in base.items()}
    for index, tensor in enumerate(manifest.tensors):
        for epoch in epochs:
            bases = basis(manifest.run_id, epoch, index, tensor, manifest.method.rank)
            core = layout.tensor(some_coefficients(manifest, epoch), index)
            moved = bases.u.astype(float) @ core.astype(float)
            if bases.v is not None:
                moved = moved @ bases.v.T.astype(float)
            weights[tensor.name] -= 2.0 ** view_exp(manifest, index) * torch.from_numpy(moved)
    return weights


def add_direction(manifest: Manifest, weights: dict[str, Tensor], direction: int, amount: float) -> dict[str, Tensor]:
    """W + amount * z_d."""
    factors = direction_factors(manifest, SEED)
    moved = {name: weight.clone() for name, weight in weights.items()}
    for index, tensor in enumerate(manifest.tensors):
        bases = basis(manifest.run_id, STEP // manifest.method.epoch_steps, index, tensor, manifest.method.rank)
        z = bases.u.astype(float) @ factors.a[direction, index].astype(float)
        if tensor.kind is TensorKind.MATRIX:
            assert bases.v is not None
            z = np.outer(z, bases.v.astype(float) @ factors.b[direction, index].astype(float))
        moved[tensor.name] += amount * 2.0 ** scale_exp(manifest.method, tensor) * torch.from_numpy(z)
    return moved


def loss_brute_force(
    model: PreTrainedModel, weights: dict[str, Tensor], examples: list[Example], label_tokens: tuple[int, ...]
) -> float:
    """One unpadded example at a time through the whole model."""
    with torch.inference_mode():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
        losses = []
        for example in examples:
            logits = model(torch.tensor([example.tokens])).logits[0, -1, list(label_tokens)]
            losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(example.label)).item())
    return math.fsum(losses) / len(losses)


def gradients_brute_force(model: PreTrainedModel, manifest: Manifest, session: Session) -> list[float]:
    base = {name: parameter.clone() for name, parameter in model.named_parameters()}
    weights = weights_brute_force(manifest, base, (0, 1, 2))
    rows = [session.data.examples[i] for i in example_indices(manifest, SEED, 0, len(session.data.examples)).tolist()]
    share = len(rows) // manifest.method.directions
    found = []
    for direction in range(manifest.method.directions):
        members = rows[direction * share : (direction + 1) * share]
        plus, minus = (
            loss_brute_force(
                model,
                add_direction(manifest, weights, direction, sign * manifest.epsilon),
                members,
                session.data.label_tokens,
            )
            for sign in (1, -1)
        )
        found.append((plus - minus) / (2 * manifest.epsilon))
    return found


def open_session(model: PreTrainedModel, manifest: Manifest, folder: Path) -> Session:
    data = read_task(tiny_tokenizer(), manifest.task, write_reviews(folder / "reviews.jsonl"), None)
    return Session(SharedModel(model), manifest, data)


@pytest.mark.parametrize(("name", "group", "core"), CASES)
def test_estimator__each_kind_of_tensor__equals_finite_difference(
    name: str, group: TensorGroup | None, core: str, tmp_path: Path
) -> None:
    model = MODELS[name]()
    plain = copy.deepcopy(model)
    groups = [group] if group else list(TensorGroup)
    manifest = model_manifest(
        model, groups, core=core, directions=4, rank=8, alpha_exp=-16, epsilon_exp=-8, scalar="raw"
    )
    session = open_session(model, manifest, tmp_path)
    for epoch in (0, 1, 2):
        session.set_coefficients(epoch, some_coefficients(manifest, epoch))

    found = session.projected_gradients(SEED, STEP)

    expected = gradients_brute_force(plain, manifest, session)
    assert min(map(abs, expected)) > 1e-7  # the case says something
    assert found == pytest.approx(expected, rel=1e-6)
    assert session.estimate(SEED, STEP).q == quantise(manifest.method, expected)


def test_estimator__after_estimate__weights_are_untouched(tmp_path: Path) -> None:
    model = tiny_opt()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    manifest = model_manifest(model, list(TensorGroup), directions=4, alpha_exp=-16)
    session = open_session(model, manifest, tmp_path)
    session.set_coefficients(0, some_coefficients(manifest, 0))
    session.estimate(SEED, STEP)
    after = dict(model.named_parameters())
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_estimator__local_steps__see_own_earlier_ones(tmp_path: Path) -> None:
    model = tiny_opt()
    manifest = model_manifest(model, list(TensorGroup), directions=4, local_steps=2, alpha_exp=-18)
    session = open_session(model, manifest, tmp_path)
    unaware = quantise(manifest.method, session.projected_gradients(SEED, STEP, 1))

    found = session.estimate(SEED, STEP)

    layout = CoefficientLayout(manifest)
    own = np.zeros(layout.size, dtype=np.int64)
    add_own(layout, own, direction_factors(manifest, SEED, 0), np.array(found.q[:4]) * manifest.weight(STEP))
    session.set_coefficients(STEP // manifest.method.epoch_steps, own)
    assert found.q[4:] == quantise(manifest.method, session.projected_gradients(SEED, STEP, 1))
    assert found.q[4:] != unaware
    assert found.rows == 32


@pytest.mark.parametrize("core", ["canonical", "rademacher"])
def test_estimator__own_local_step__moves_as_the_ledger_does(core: str) -> None:
    manifest = model_manifest(tiny_opt(), list(TensorGroup), directions=4, core=core)
    layout, scalars = CoefficientLayout(manifest), (3, -5, 0, 127)
    own = np.zeros(layout.size, dtype=np.int64)
    add_own(layout, own, direction_factors(manifest, SEED), np.array(scalars) * manifest.weight(STEP))
    ledger = Coefficients(manifest)
    ledger.add([Envelope(author=Author(b"a" * 32), step=STEP, seed=SEED, scalars=scalars, record=b"")])
    assert np.array_equal(own, ledger.flat(STEP // manifest.method.epoch_steps))


def test_estimator__infinite_loss__raises_numeric_error(tmp_path: Path) -> None:
    model = tiny_opt()
    manifest = model_manifest(model, [TensorGroup.LINEAR], directions=4, alpha_exp=0)
    session = open_session(model, manifest, tmp_path)
    output_embedding(model).weight.fill_(1e308)
    with pytest.raises(NumericError, match="not finite"):
        session.estimate(SEED, STEP)


def test_estimator__no_training_data__raises_operator_error() -> None:
    model = tiny_opt()
    manifest = model_manifest(model, [TensorGroup.LINEAR], directions=4)
    session = Session(SharedModel(model), manifest, TaskData(label_tokens=(3, 4)))
    with pytest.raises(OperatorError, match="no training data"):
        session.estimate(SEED, STEP)
