"""The float view: exact, the same bits whatever the thread count, and the same weights as the low-rank path shows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from protocol.coefficients import CoefficientLayout, view_exp
from protocol.manifest import Manifest
from protocol.subspace import basis, direction_factors
from sfnode.training.session import SharedModel, live_terms
from sfnode.training.tasks import Example, row_batch
from sfnode.training.tensors import TensorGroup, attach
from sfnode.training.view import fold_weights
from tiny_models import model_manifest, tiny_opt


def some_coefficients(manifest: Manifest, epoch: int, size: int = 2_000) -> NDArray[np.int64]:
    drawn = np.random.default_rng(epoch).integers(-size, size, CoefficientLayout(manifest).size)
    return drawn.astype(np.int64)


def base_weights(model: torch.nn.Module, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().to(dtype) for name, parameter in model.named_parameters()}


def exact_entry(manifest: Manifest, index: int, base: float, epochs: dict[int, NDArray[np.int64]]) -> Fraction:
    """W[0, 0] of a matrix, in rational arithmetic."""
    value, layout = Fraction(base), CoefficientLayout(manifest)
    for epoch, flat in epochs.items():
        bases = basis(manifest.run_id, epoch, index, manifest.tensors[index], manifest.method.rank)
        assert bases.v is not None
        core = layout.tensor(flat, index)
        total = sum(
            int(bases.u[0, i]) * int(core[i, j]) * int(bases.v[0, j])
            for i in range(manifest.method.rank)
            for j in range(manifest.method.rank)
        )
        value -= Fraction(total) * Fraction(2) ** view_exp(manifest, index)
    return value


@pytest.mark.parametrize("size", [2_000, 1 << 40])
def test_fold__any_coefficients__is_the_nearest_float(size: int) -> None:
    model = tiny_opt()
    manifest = model_manifest(model, [TensorGroup.LINEAR], alpha_exp=-50)
    base = base_weights(model, torch.float32)
    epochs = {epoch: some_coefficients(manifest, epoch, size) for epoch in (0, 3)}
    folded = fold_weights(manifest, epochs, base)
    assert set(folded) == {tensor.name for tensor in manifest.tensors}
    for index, tensor in enumerate(manifest.tensors):
        exact = exact_entry(manifest, index, base[tensor.name][0, 0].item(), epochs)
        assert folded[tensor.name].dtype == torch.float32
        assert folded[tensor.name][0, 0].item() == np.float32(float(exact))


def test_fold__other_thread_count__gives_the_same_bits() -> None:
    model = tiny_opt()
    manifest = model_manifest(model, list(TensorGroup), core="rademacher", alpha_exp=-20)
    epochs = {epoch: some_coefficients(manifest, epoch) for epoch in (0, 1, 2)}
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append(fold_weights(manifest, epochs, base_weights(model, torch.float32)))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_fold__epochs_in_other_order__gives_the_same_bits() -> None:
    model = tiny_opt()
    manifest = model_manifest(model, [TensorGroup.LINEAR], alpha_exp=-20)
    epochs = {epoch: some_coefficients(manifest, epoch) for epoch in (2, 0, 1)}
    base = base_weights(model, torch.float32)
    one, other = fold_weights(manifest, epochs, base), fold_weights(manifest, dict(sorted(epochs.items())), base)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_fold__no_coefficients__changes_nothing() -> None:
    model = tiny_opt()
    manifest = model_manifest(model, [TensorGroup.LINEAR])
    zeros = np.zeros(CoefficientLayout(manifest).size, dtype=np.int64)
    assert fold_weights(manifest, {0: zeros}, base_weights(model, torch.float32)) == {}


@torch.inference_mode()
def test_fold__same_coefficients_as_low_rank_terms__gives_the_same_logits() -> None:
    model = tiny_opt()
    shared = SharedModel(model)
    manifest = model_manifest(model, list(TensorGroup), alpha_exp=-14, epsilon_exp=-30, directions=2)
    from_session = some_coefficients(manifest, 0)
    rows = row_batch([Example(tokens=(3, 4, 5, 6), label=0), Example(tokens=(7, 8), label=1)] * 2, 0, shared.device)
    before = shared.label_logits(rows, (3, 4))
    attach(model, manifest.tensors, shared.batch)
    terms = live_terms(shared, manifest, 0, from_session, direction_factors(manifest, 1))
    with shared.batch.carrying(terms, 4, rows.tokens.numel()):
        live = shared.label_logits(rows, (3, 4))
    with shared.switch.using(fold_weights(manifest, {0: from_session}, shared.switch.base)):
        folded = shared.label_logits(rows, (3, 4))
    assert torch.allclose(live, folded, rtol=0, atol=1e-5)
    assert (live - before).abs().max().item() > 1e-2
    assert torch.equal(shared.label_logits(rows, (3, 4)), before)
