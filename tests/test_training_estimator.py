"""The estimator against brute force: fp64 weights written out, one plain forward pass per direction and sign."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from protocol.bases import Bases, decode_basis_untrusted, encode_basis
from protocol.coefficients import CoefficientLayout, Coefficients, view_exp
from protocol.envelope import Envelope
from protocol.errors import NumericError, OperatorError
from protocol.hashing import Author
from protocol.manifest import Manifest, TensorKind, checked
from protocol.method import BasisKind
from protocol.quantise import quantise
from protocol.sampling import example_indices
from protocol.structure import to_plain
from protocol.subspace import Basis, direction_factors, scale_exp
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


def weights_brute_force(bases: Bases, base: dict[str, Tensor], epochs: tuple[int, ...]) -> dict[str, Tensor]:
    """W0 - sum of 2^k U C V^T, one dense product after the other."""
    manifest = bases.manifest
    layout = CoefficientLayout(manifest)
    weights = {name: weight.clone() for name, weight in base.items()}
    for index, tensor in enumerate(manifest.tensors):
        for epoch in epochs:
            space = bases.of(epoch, index)
            core = layout.tensor(some_coefficients(manifest, epoch), index)
            moved = space.u.astype(float) @ core.astype(float)
            if space.v is not None:
                moved = moved @ space.v.T.astype(float)
            weights[tensor.name] -= 2.0 ** view_exp(manifest, index) * torch.from_numpy(moved)
    return weights


def add_direction(bases: Bases, weights: dict[str, Tensor], direction: int, amount: float) -> dict[str, Tensor]:
    """W + amount * z_d."""
    manifest = bases.manifest
    factors = direction_factors(manifest, SEED)
    moved = {name: weight.clone() for name, weight in weights.items()}
    for index, tensor in enumerate(manifest.tensors):
        space = bases.of(STEP // manifest.method.epoch_steps, index)
        z = space.u.astype(float) @ factors.a[direction, index].astype(float)
        if tensor.kind is TensorKind.MATRIX:
            assert space.v is not None
            z = np.outer(z, space.v.astype(float) @ factors.b[direction, index].astype(float))
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


def gradients_brute_force(model: PreTrainedModel, bases: Bases, session: Session) -> list[float]:
    manifest, method = bases.manifest, bases.manifest.method
    base = {name: parameter.clone() for name, parameter in model.named_parameters()}
    weights = weights_brute_force(bases, base, (0, 1, 2))
    rows = [session.data.examples[i] for i in example_indices(manifest, SEED, 0, len(session.data.examples)).tolist()]
    share = len(rows) * method.shares // method.directions
    found = []
    for direction in range(method.directions):
        block = direction // method.shares
        members = rows[block * share : (block + 1) * share]
        amounts = (manifest.epsilon, -manifest.epsilon if method.sides == 2 else 0.0)
        plus, other = (
            loss_brute_force(
                model, add_direction(bases, weights, direction, amount), members, session.data.label_tokens
            )
            for amount in amounts
        )
        found.append((plus - other) / (method.sides * manifest.epsilon))
    return found


def small_published(manifest: Manifest) -> Bases:
    """The same run with a published basis, whose entries differ in size."""
    chosen = []
    for index, tensor in enumerate(manifest.tensors):
        sides = [np.arange(size * manifest.method.rank) * 37 + index for size in (tensor.rows, tensor.cols)]
        u, v = (((side % 23) - 11).astype(np.int8).reshape(-1, manifest.method.rank) for side in sides)
        chosen.append(Basis(u=u, v=v if tensor.kind is TensorKind.MATRIX else None))
    data = encode_basis(manifest.method.rank, chosen)
    method = dataclasses.replace(
        manifest.method,
        basis=BasisKind.PUBLISHED,
        basis_sha256=hashlib.sha256(data).hexdigest(),
        basis_unit_exp=3,
        basis_max=11,
    )
    published = checked(to_plain(dataclasses.replace(manifest, method=method), as_rows=False))
    return Bases(published, decode_basis_untrusted(published, data))


def open_session(model: PreTrainedModel, run: Manifest | Bases, folder: Path) -> Session:
    bases = Bases(run) if isinstance(run, Manifest) else run
    data = read_task(tiny_tokenizer(), bases.manifest.task, write_reviews(folder / "reviews.jsonl"), None)
    return Session(SharedModel(model), bases, data)


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

    expected = gradients_brute_force(plain, Bases(manifest), session)
    assert min(map(abs, expected)) > 1e-7  # the case says something
    assert found == pytest.approx(expected, rel=1e-6)
    assert session.estimate(SEED, STEP).q == quantise(manifest.method, expected)


@pytest.mark.parametrize("is_published", [False, True])
@pytest.mark.parametrize(("sides", "shares"), [(1, 1), (1, 4), (2, 2), (1, 2), (2, 4)])
def test_estimator__sides_and_shares__equal_finite_difference(
    sides: int, shares: int, is_published: bool, tmp_path: Path
) -> None:
    model = tiny_llama()
    plain = copy.deepcopy(model)
    manifest = model_manifest(
        model, list(TensorGroup), core="rademacher", directions=4, rank=4, alpha_exp=-20, epsilon_exp=-8, sides=sides,
        shares=shares, clip=10,
    )  # fmt: skip
    bases = small_published(manifest) if is_published else Bases(manifest)
    session = open_session(model, bases, tmp_path)
    for epoch in (0, 1, 2):
        session.set_coefficients(epoch, some_coefficients(manifest, epoch))

    found = session.projected_gradients(SEED, STEP)

    expected = gradients_brute_force(plain, bases, session)
    assert min(map(abs, expected)) > 1e-7  # the case says something
    assert found == pytest.approx(expected, rel=1e-6)
    batch = manifest.task.batch_rows
    spent = batch * shares * 2 if sides == 2 else batch * shares + batch
    assert session.estimate(SEED, STEP).rows == spent


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
    session = Session(SharedModel(model), Bases(manifest), TaskData(label_tokens=(3, 4)))
    with pytest.raises(OperatorError, match="no training data"):
        session.estimate(SEED, STEP)
