"""The estimator against brute force: fp64 weights written out, one plain forward pass per direction and sign."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from protocol.crypto.hashing import Author
from protocol.errors import NumericError, OperatorError
from protocol.ledger.envelope import Envelope
from protocol.run.manifest import Manifest
from protocol.state.coefficients import CoefficientLayout, Coefficients
from protocol.subspace.basis_file import Bases
from protocol.subspace.directions import direction_factors
from protocol.subspace.quantisation import quantise
from sfnode.training.estimator import Estimator, add_own
from sfnode.training.model.loading import output_embedding
from sfnode.training.model.tensor_groups import TensorGroup
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import TaskData, read_task
from tests.support.tiny_models import model_manifest, tiny_gpt2, tiny_llama, tiny_opt, tiny_tokenizer, write_reviews
from tests.training.brute_force import SEED, STEP, dense_gradients, some_coefficients, unquantised

MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "opt": tiny_opt,
    "gpt2": tiny_gpt2,
    "llama": tiny_llama,
    "llama-tied": lambda: tiny_llama(tied=True),
}
CASES = [
    (name, group, core) for name in MODELS for group in [*TensorGroup, None] for core in ("canonical", "rademacher")
]


def open_session(model: PreTrainedModel, manifest: Manifest, folder: Path) -> Estimator:
    data = read_task(tiny_tokenizer(), manifest.task, write_reviews(folder / "reviews.jsonl"), None)
    return Estimator(SharedModel(model), Bases(manifest), data)


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

    found = unquantised(session, SEED, STEP)

    expected = dense_gradients(plain, Bases(manifest), session)
    assert min(map(abs, expected)) > 1e-7  # the case is not a trivial one
    assert found == pytest.approx(expected, rel=1e-6)
    assert session.estimate(SEED, STEP).scalars == quantise(manifest.method, expected)


@pytest.mark.parametrize(("sides", "shares"), [(1, 1), (1, 4), (2, 2), (1, 2), (2, 4)])
def test_estimator__sides_and_shares__equal_finite_difference(sides: int, shares: int, tmp_path: Path) -> None:
    model = tiny_llama()
    plain = copy.deepcopy(model)
    manifest = model_manifest(
        model, list(TensorGroup), core="rademacher", directions=4, rank=4, alpha_exp=-20, epsilon_exp=-8, sides=sides,
        shares=shares, clip=10,
    )  # fmt: skip
    session = open_session(model, manifest, tmp_path)
    for epoch in (0, 1, 2):
        session.set_coefficients(epoch, some_coefficients(manifest, epoch))

    found = unquantised(session, SEED, STEP)

    expected = dense_gradients(plain, Bases(manifest), session)
    assert min(map(abs, expected)) > 1e-7  # the case is not a trivial one
    assert found == pytest.approx(expected, rel=1e-6)
    batch = manifest.task.batch_rows
    spent = batch * shares * 2 if sides == 2 else batch * shares + batch
    assert session.estimate(SEED, STEP).rows == spent


@pytest.mark.parametrize(("sides", "shares", "measured"), [(2, 1, 1), (2, 1, 3), (2, 2, 2), (1, 2, 2), (1, 1, 3)])
@pytest.mark.parametrize("scalar", ["raw", "normalised"])
def test_estimator__some_directions_only__measures_their_blocks_and_no_more(
    sides: int, shares: int, measured: int, scalar: str, tmp_path: Path
) -> None:
    model = tiny_llama()
    manifest = model_manifest(
        model, list(TensorGroup), core="rademacher", directions=4, rank=4, alpha_exp=-20, epsilon_exp=-8, sides=sides,
        shares=shares, scalar=scalar, clip=127 if scalar == "normalised" else 1_000,
    )  # fmt: skip
    session = open_session(model, manifest, tmp_path)
    session.set_coefficients(STEP // manifest.method.epoch_steps, some_coefficients(manifest, 0))
    gradients, whole = unquantised(session, SEED, STEP), session.estimate(SEED, STEP)

    found = session.estimate(SEED, STEP, measured)

    assert found.scalars == quantise(manifest.method, gradients[:measured])
    assert any(found.scalars[:measured]) and found.scalars[measured:] == (0,) * (4 - measured)
    assert found.rows * 4 == whole.rows * measured
    assert session.estimate(SEED, STEP, 4) == whole


def test_estimator__some_directions_of_local_steps__sees_its_own_earlier_ones(tmp_path: Path) -> None:
    model = tiny_opt()
    manifest = model_manifest(model, list(TensorGroup), directions=4, local_steps=2, alpha_exp=-18)
    session = open_session(model, manifest, tmp_path)

    found = session.estimate(SEED, STEP, 2)

    layout = CoefficientLayout(manifest)
    own = np.zeros(layout.size, dtype=np.int64)
    add_own(layout, own, direction_factors(manifest, SEED, 0), np.array(found.scalars[:4]) * manifest.weight(STEP))
    session.set_coefficients(STEP // manifest.method.epoch_steps, own)
    gradients = unquantised(session, SEED, STEP, 1)
    assert found.scalars[4:] == quantise(manifest.method, gradients[:2])
    assert found.scalars[2:4] == found.scalars[6:] == (0, 0)


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
    unaware = quantise(manifest.method, unquantised(session, SEED, STEP, 1))

    found = session.estimate(SEED, STEP)

    layout = CoefficientLayout(manifest)
    own = np.zeros(layout.size, dtype=np.int64)
    add_own(layout, own, direction_factors(manifest, SEED, 0), np.array(found.scalars[:4]) * manifest.weight(STEP))
    session.set_coefficients(STEP // manifest.method.epoch_steps, own)
    assert found.scalars[4:] == quantise(manifest.method, unquantised(session, SEED, STEP, 1))
    assert found.scalars[4:] != unaware
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
    session = Estimator(SharedModel(model), Bases(manifest), TaskData(label_tokens=(3, 4)))
    with pytest.raises(OperatorError, match="no training data"):
        session.estimate(SEED, STEP)


def test_estimator__shown_one_state_after_another__measures_what_a_fresh_one_does(tmp_path: Path) -> None:
    """Epochs that came, changed, or went back to zero; what is equal already is left alone."""
    model = tiny_opt()
    manifest = model_manifest(model, [TensorGroup.LINEAR], directions=4, alpha_exp=-16)
    states = [Coefficients(manifest) for _ in range(4)]
    for state, epochs in zip(states, ((0, 1), (0, 1, 2), (2,), ()), strict=True):
        for epoch in epochs:
            state.set_flat(epoch, some_coefficients(manifest, epoch + len(epochs)))
    session, shared = open_session(copy.deepcopy(model), manifest, tmp_path), SharedModel(model)
    for state in (*states, states[0]):
        session.show(state)
        fresh = Estimator(shared, Bases(manifest), session.data)
        fresh.show(state)
        assert session.estimate(SEED, STEP) == fresh.estimate(SEED, STEP)

    session.set_coefficients(1, some_coefficients(manifest, 9))
    session.show(states[0])
    assert session.estimate(SEED, STEP) == fresh.estimate(SEED, STEP)
