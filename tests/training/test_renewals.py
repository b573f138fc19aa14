"""Renewals: what a file of the run can hold of what was found, from which weights on, and what a trial says of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from protocol.run.manifest import Manifest, checked
from protocol.schema import to_plain
from protocol.state.coefficients import Coefficients
from protocol.subspace.bases import Bases, Published
from protocol.subspace.basis_file import Start, decode_basis_untrusted, encode_basis
from protocol.subspace.directions import Basis, Int8Array
from sfnode.storage.stored_bases import BasisSpec
from sfnode.training.calibration.calibration import Calibration
from sfnode.training.calibration.forward import forward_basis
from sfnode.training.calibration.found_basis import FoundBasis
from sfnode.training.calibration.renewal_content import renewal_of
from sfnode.training.calibration.renewal_trial import TrialPlan, try_renewal
from sfnode.training.calibration.sources import move_before
from sfnode.training.estimator import Estimator
from sfnode.training.model.folding import fold_weights
from sfnode.training.model.tensors import TensorGroup, trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import TaskData
from tests.support.tiny_models import model_manifest, tiny_llama
from tests.training.brute_force import bases_of
from tests.training.test_calibration import labelled_by_a_word

DATA = TaskData(label_tokens=(3, 4), examples=labelled_by_a_word(2, 120))


@pytest.fixture
def shared() -> SharedModel:
    return SharedModel(tiny_llama())


def of(shared: SharedModel) -> Calibration:
    return Calibration(shared=shared, tensors=trainable_tensors(shared.model), data=DATA)


def found_in(shared: SharedModel) -> FoundBasis:
    """A start that helps, and a basis."""
    return forward_basis(of(shared), 1)


def manifest_with(shared: SharedModel, found: FoundBasis, **method: int) -> Manifest:
    """A run whose first file holds what was found."""
    plain = model_manifest(shared.model, [TensorGroup.LINEAR], alpha_exp=-30, epoch_steps=4)
    spec = BasisSpec.of(encode_basis(1, found.content))
    chosen: dict[str, object] = {
        "rank": 1,
        "clip": 1,
        "basis": "published",
        "basis_sha256": spec.sha256,
        "basis_unit_exp": spec.unit_exp,
        "basis_max": spec.entry_max,
        "start_rank": spec.start_rank,
    }
    known = to_plain(plain, as_rows=False)
    return checked({**known, "method": {**known["method"], **chosen, **method}})


def sides_of(start: Start | None) -> list[tuple[Int8Array, Int8Array]]:
    """U and V of every matrix."""
    assert start is not None
    return [(each.u, each.v) for each in start.products if each is not None and each.v is not None]


def turned(start: Start, factor: int, columns: int = 1) -> Start:
    """Each product times ``factor``, its columns so many times."""
    products = tuple(
        Basis(u=np.hstack([u * np.int8(factor)] * columns), v=np.hstack([v] * columns)) for u, v in sides_of(start)
    )
    return Start(exp=start.exp, products=products)


# --- what a file can hold


def test_renewal_of__start_of_the_runs_rank__is_kept_as_it_is(shared: SharedModel) -> None:
    found = found_in(shared)
    content = renewal_of(manifest_with(shared, found), found)
    assert content.start is not None and found.start is not None and content.start.exp == found.start.exp
    for one, other in zip(sides_of(content.start), sides_of(found.start), strict=True):
        assert np.array_equal(one[0], other[0]) and np.array_equal(one[1], other[1])


def test_renewal_of__narrower_start__has_columns_of_zeros_and_moves_the_same(shared: SharedModel) -> None:
    found = found_in(shared)
    content = renewal_of(manifest_with(shared, found, start_rank=3), found)
    for (u, v), (found_u, found_v) in zip(sides_of(content.start), sides_of(found.start), strict=True):
        assert u.shape[1] == v.shape[1] == 3
        assert np.array_equal(u.astype(int) @ v.T, found_u.astype(int) @ found_v.T)


@pytest.mark.parametrize("fault", ["too wide", "entries too large", "there is none"])
def test_renewal_of__start_that_does_not_fit__is_zero_and_not_another_one(shared: SharedModel, fault: str) -> None:
    found = found_in(shared)
    manifest = manifest_with(shared, found)
    assert found.start is not None
    if fault == "too wide":
        found = replace(found, start=turned(found.start, 1, columns=2))
    elif fault == "entries too large":
        manifest = manifest_with(shared, found, basis_max=manifest.method.basis_max - 1)
    else:
        found = replace(found, start=None)
    content = renewal_of(manifest, found)
    assert content.start is not None and not content.start.moves_any
    largest = max(int(np.abs(each.u).max()) for each in content.bases)
    assert 0 < largest <= manifest.method.basis_max
    data = encode_basis(1, content)
    read = decode_basis_untrusted(manifest, data, BasisSpec.of(data).sha256)
    assert read.start is not None and not read.start.moves_any


def test_renewal_of__run_without_starts__has_none(shared: SharedModel) -> None:
    found = found_in(shared)
    assert renewal_of(manifest_with(shared, found, start_rank=0), found).start is None


# --- the trial


def test_try_renewal__start__is_in_the_loss_after(shared: SharedModel) -> None:
    found = found_in(shared)
    manifest, plan = manifest_with(shared, found), TrialPlan(epoch=1, authors=1)
    trial = try_renewal(of(shared), manifest, found.content, plan)
    without = try_renewal(of(shared), manifest, replace(found.content, start=None), plan)
    assert trial is not None and without is not None
    assert trial.loss_before == without.loss_before
    assert trial.loss_after < trial.loss_before - 0.05 < without.loss_after
    assert not trial.hurts


def test_try_renewal__start_the_other_way_round__hurts(shared: SharedModel) -> None:
    found = found_in(shared)
    assert found.start is not None
    content = replace(found.content, start=turned(found.start, -1))
    trial = try_renewal(of(shared), manifest_with(shared, found), content, TrialPlan(epoch=1, authors=1))
    assert trial is not None and trial.hurts


# --- the weights that it is made at


@pytest.mark.parametrize(("first", "is_in"), [(1, True), (2, True), (3, False)])
def test_move_before__starts_of_earlier_renewals__are_in_the_weights(
    shared: SharedModel, first: int, is_in: bool
) -> None:
    """What is renewed from epoch 3 on finds all that is added before, also by a renewal that is still to begin."""
    found = found_in(shared)
    plain = manifest_with(shared, found)
    content, zero = renewal_of(plain, found), renewal_of(plain, replace(found, start=None))
    method = replace(plain.method, basis_sha256=BasisSpec.of(encode_basis(1, zero)).sha256)
    manifest = replace(plain, method=method)
    bases = Bases(manifest, zero, {first: Published(sha256="1" * 64, bases=content.bases, start=content.start)})
    base = {name: weight.clone() for name, weight in shared.switch.base.items()}
    move_before(shared, bases, Coefficients(manifest), 3)
    expected = base | (fold_weights(bases, {}, base, first) if is_in else {})
    assert all(torch.equal(weight, expected[name]) for name, weight in shared.switch.base.items())
    assert any(not torch.equal(weight, base[name]) for name, weight in shared.switch.base.items()) is is_in


# --- sessions


def test_session__start_of_a_renewal__is_in_the_folds_of_its_epochs_alone(shared: SharedModel) -> None:
    """Coefficients are the same in all: only the starts tell the folds of three epochs apart."""
    manifest = model_manifest(shared.model, [TensorGroup.LINEAR], alpha_exp=-20, epoch_steps=4, clip=10)
    bases = bases_of("restarted", manifest)
    session = Estimator(shared, bases, DATA)
    kept = [session._closed_weights(epoch) for epoch in (0, 1, 2, 3)]
    name = next(iter(kept[0]))
    weights = [weight for each in kept if isinstance(weight := each[name], torch.Tensor)]
    for epoch, weight in enumerate(weights):
        assert torch.equal(weight, fold_weights(bases, {}, shared.switch.base, epoch)[name])
    assert not torch.equal(weights[0], weights[1]) and not torch.equal(weights[1], weights[2])
    assert weights[2] is weights[3]
