"""Sessions on a shared model: folded epochs are remade when they change and shared when they are equal."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

from protocol.errors import OperatorError
from protocol.run.manifest import Manifest
from protocol.state.coefficients import CoefficientLayout
from protocol.subspace.basis_file import Bases
from sfnode.training import estimator
from sfnode.training.estimator import EVALUATIONS_KEPT, Estimator
from sfnode.training.model.tensor_groups import TensorGroup
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import read_task
from tests.support.tiny_models import model_manifest, tiny_opt, tiny_tokenizer, write_reviews
from tests.training.brute_force import made_up_bases, unquantised

STEP = 20  # of epoch 1
SEED = 7


@pytest.fixture
def shared() -> SharedModel:
    return SharedModel(tiny_opt())


@pytest.fixture
def manifest(shared: SharedModel) -> Manifest:
    return model_manifest(shared.model, [TensorGroup.LINEAR], directions=4, alpha_exp=-16)


def test_shared_model__checks_of_a_loaded_model__pass_one_size_of_batch() -> None:
    """Libraries keep kernels of each size of a 16-bit pass for good: 2.3 MB for SmolLM2-135M."""
    model = tiny_opt()
    seen: list[tuple[int, ...]] = []
    embedding = model.get_input_embeddings()
    embedding.register_forward_pre_hook(lambda _module, inputs: seen.append(tuple(inputs[0].shape)))
    SharedModel(model)
    assert len(seen) > 3 and len(set(seen)) == 1, set(seen)


def open_session(shared: SharedModel, manifest: Manifest, folder: Path) -> Estimator:
    reviews = write_reviews(folder / "reviews.jsonl")
    return Estimator(shared, Bases(manifest), read_task(tiny_tokenizer(), manifest.task, reviews, reviews))


def some_coefficients(manifest: Manifest, number: int) -> NDArray[np.int64]:
    size = CoefficientLayout(manifest).size
    return np.random.default_rng(number).integers(-2_000, 2_000, size).astype(np.int64)


def test_session__late_update_of_a_closed_epoch__counts_at_once(
    shared: SharedModel, manifest: Manifest, tmp_path: Path
) -> None:
    session, fresh = (open_session(shared, manifest, tmp_path) for _ in range(2))
    session.set_coefficients(0, some_coefficients(manifest, 1))
    before = unquantised(session, SEED, STEP)
    session.set_coefficients(0, some_coefficients(manifest, 2))
    fresh.set_coefficients(0, some_coefficients(manifest, 2))
    after = unquantised(session, SEED, STEP)
    assert after == unquantised(fresh, SEED, STEP)
    assert after != before


def test_session__steps_of_one_epoch__closed_epochs_are_hashed_when_one_of_them_changes(
    shared: SharedModel, manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault once: all were hashed at each step, to find that nothing had changed."""
    session = open_session(shared, manifest, tmp_path)
    hashed = Mock(side_effect=estimator._digest)
    monkeypatch.setattr(estimator, "_digest", hashed)
    live, closed = STEP // manifest.method.epoch_steps, 0
    counts: list[int] = []
    for epoch in (closed, live, live, live + 1, closed, live):
        session.set_coefficients(epoch, some_coefficients(manifest, len(counts)))
        session.estimate(SEED, STEP)
        counts.append(hashed.call_count)
    assert counts == [1, 1, 1, 2, 3, 3]
    session.estimate(SEED, STEP + manifest.method.epoch_steps)  # another epoch is the live one
    session.estimate(SEED, STEP)
    assert hashed.call_count == 5
    fresh = open_session(shared, manifest, tmp_path)
    for epoch, number in ((closed, 4), (live, 5), (live + 1, 3)):
        fresh.set_coefficients(epoch, some_coefficients(manifest, number))
    assert unquantised(session, SEED, STEP) == unquantised(fresh, SEED, STEP)


def test_session__epoch_taken_back_to_zero__equals_the_base_model(
    shared: SharedModel, manifest: Manifest, tmp_path: Path
) -> None:
    session = open_session(shared, manifest, tmp_path)
    before = unquantised(session, SEED, STEP), session.evaluate()
    session.set_coefficients(0, some_coefficients(manifest, 1))
    assert unquantised(session, SEED, STEP) != before[0]
    session.set_coefficients(0, np.zeros_like(some_coefficients(manifest, 1)))
    assert (unquantised(session, SEED, STEP), session.evaluate()) == before


def test_session__equal_closed_epochs__are_folded_once_and_freed(
    shared: SharedModel, manifest: Manifest, tmp_path: Path
) -> None:
    sessions = [open_session(shared, manifest, tmp_path) for _ in range(3)]
    for session in sessions:
        session.set_coefficients(0, some_coefficients(manifest, 1))
        session.estimate(SEED, STEP)
    assert len(shared.folds) == 1
    del session
    sessions.clear()
    assert len(shared.folds) == 0


def test_session__steps_of_dense_cores__add_up_and_nothing_is_folded(
    shared: SharedModel, manifest: Manifest, tmp_path: Path
) -> None:
    bases = made_up_bases(manifest, core_rows=1)
    data = open_session(shared, manifest, tmp_path).data
    apart, together = (Estimator(shared, bases, data) for _ in range(2))
    before = together.estimate(SEED, STEP)
    flats = [some_coefficients(bases.manifest, number) for number in (1, 2)]
    apart.set_coefficients(0, some_coefficients(bases.manifest, 3))  # replaced at once
    for step, flat in enumerate(flats):
        apart.set_coefficients(step, flat)
    together.set_coefficients(STEP, flats[0] + flats[1])
    assert np.array_equal(apart._live(STEP), together._live(STEP))
    found, expected = apart.estimate(SEED, STEP), together.estimate(SEED, STEP)
    assert found.scalars == expected.scalars != before.scalars
    # Some BLAS libraries round by how the memory lies: even the same pass, made twice, may differ in the last digits.
    assert found.loss == pytest.approx(expected.loss, rel=1e-9)
    assert apart.evaluate().loss == pytest.approx(together.evaluate().loss, rel=1e-9)
    assert len(shared.folds) == 0


def test_session__state_that_another_session_evaluated__is_not_evaluated_again(
    shared: SharedModel, manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test network measures the states that its first node has measured, with the same worker."""
    monkeypatch.setattr("sfnode.training.estimator.EVALUATION_TOKENS", 200)
    told: list[tuple[int, int]] = []
    one, other = (open_session(shared, manifest, tmp_path) for _ in range(2))
    for state in range(2):
        for session in (one, other):
            session.set_coefficients(0, some_coefficients(manifest, state))
            session.evaluate(on_progress=lambda done, rows: told.append((done, rows)))
    once = told[: len(told) // 2]
    assert told == once * 2 and len(once) > 1 and once[-1] == (16, 16)


def test_session__run_with_another_basis__same_coefficients_have_another_meaning(
    shared: SharedModel, manifest: Manifest, tmp_path: Path
) -> None:
    """All caches of the shared model know of which basis they speak."""
    data = open_session(shared, manifest, tmp_path).data
    one, other = (Estimator(shared, made_up_bases(manifest, core_rows=1, number=each), data) for each in (1, 2))
    assert one.evaluate() == other.evaluate()
    for session in (one, other):
        session.set_coefficients(0, some_coefficients(session.manifest, 5))
    assert one.evaluate() != other.evaluate()
    assert one.estimate(SEED, STEP).loss != other.estimate(SEED, STEP).loss


def test_session__other_state__is_evaluated_anew(shared: SharedModel, manifest: Manifest, tmp_path: Path) -> None:
    one, other = (open_session(shared, manifest, tmp_path) for _ in range(2))
    base = one.evaluate()
    assert base.rows == 16
    assert one.evaluate(5).rows == 5
    other.set_coefficients(0, some_coefficients(manifest, 1))
    assert other.evaluate().loss != base.loss
    assert one.evaluate() == base


def test_session__many_states__evaluations_are_bounded(shared: SharedModel, manifest: Manifest, tmp_path: Path) -> None:
    session = open_session(shared, manifest, tmp_path)
    for number in range(EVALUATIONS_KEPT + 3):
        session.set_coefficients(0, some_coefficients(manifest, number))
        session.evaluate(1)
    assert len(shared.evaluations) == EVALUATIONS_KEPT


def test_session__no_evaluation_data__is_refused(shared: SharedModel, manifest: Manifest, tmp_path: Path) -> None:
    data = read_task(tiny_tokenizer(), manifest.task, write_reviews(tmp_path / "reviews.jsonl"), None)
    with pytest.raises(OperatorError, match="no evaluation data"):
        Estimator(shared, Bases(manifest), data).evaluate()


def test_session__coefficients_of_another_run__are_refused(
    shared: SharedModel, manifest: Manifest, tmp_path: Path
) -> None:
    with pytest.raises(OperatorError, match="3 coefficients, the run has"):
        open_session(shared, manifest, tmp_path).set_coefficients(0, np.zeros(3, dtype=np.int64))
