"""The float view: exact, the same bits whatever the thread count, and the same weights as the low-rank path shows."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from protocol.crypto.hashing import Author
from protocol.ledger.envelope import Envelope
from protocol.run.manifest import Manifest, TensorKind
from protocol.state.coefficients import CoefficientLayout, Coefficients, view_exp
from protocol.subspace.basis_file import Bases
from protocol.subspace.directions import Basis, Int8Array, direction_factors
from sfnode.training.estimator import live_terms
from sfnode.training.model import folding as view
from sfnode.training.model.folding import fold_weights
from sfnode.training.model.tensor_groups import TensorGroup, attach
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import Example, row_batch
from tests.support.manifests import small_manifest
from tests.support.tiny_models import model_manifest, tiny_gpt2, tiny_opt
from tests.training.brute_force import bases_of, made_up_bases


def some_coefficients(manifest: Manifest, epoch: int, size: int = 2_000) -> NDArray[np.int64]:
    drawn = np.random.default_rng(epoch).integers(-size, size, CoefficientLayout(manifest).size)
    return drawn.astype(np.int64)


def base_weights(model: torch.nn.Module, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().to(dtype) for name, parameter in model.named_parameters()}


def exact_entry(bases: Bases, index: int, base: float, epochs: dict[int, NDArray[np.int64]]) -> Fraction:
    """W[0, 0] of a matrix, in rational arithmetic."""
    manifest = bases.manifest
    value, layout = Fraction(base), CoefficientLayout(manifest)
    for epoch, flat in epochs.items():
        space = bases.of(epoch, index)
        entry = Fraction(whole_entry(space, layout.tensor(flat, index)))
        value -= entry * Fraction(2) ** (view_exp(manifest, index) + space.exp)
    return value


def whole_entry(space: Basis, core: NDArray[np.int64]) -> int:
    """(U C V^T)[0, 0] in whole numbers."""
    assert space.v is not None
    u, v = space.u[0].tolist(), space.v[0].tolist()
    return sum(u[i] * c * v[j] for i, row in enumerate(core.tolist()) for j, c in enumerate(row))


@pytest.mark.parametrize("kind", ["random", "dense"])
@pytest.mark.parametrize("size", [2_000, 1 << 38])
def test_fold__any_coefficients__is_the_nearest_float(size: int, kind: str) -> None:
    model = tiny_opt()
    manifest = model_manifest(model, [TensorGroup.LINEAR], alpha_exp=-50, clip=10)
    bases = bases_of(kind, manifest)
    manifest = bases.manifest
    base = base_weights(model, torch.float32)
    epochs = {epoch: some_coefficients(manifest, epoch, size) for epoch in (0, 3)}
    folded = fold_weights(bases, epochs, base)
    assert set(folded) == {tensor.name for tensor in manifest.tensors}
    for index, tensor in enumerate(manifest.tensors):
        exact = exact_entry(bases, index, base[tensor.name][0, 0].item(), epochs)
        assert folded[tensor.name].dtype == torch.float32
        assert folded[tensor.name][0, 0].item() == np.float32(float(exact))


def test_fold__transposed_tensor__is_moved_by_the_transpose_of_the_same_product() -> None:
    model = tiny_gpt2()
    bases = made_up_bases(model_manifest(model, [TensorGroup.LINEAR], alpha_exp=-20, clip=10), is_turned=True)
    manifest, layout = bases.manifest, CoefficientLayout(bases.manifest)
    assert {tensor.kind for tensor in manifest.tensors} == {TensorKind.TRANSPOSED}
    flat, base = some_coefficients(manifest, 1), base_weights(model, torch.float64)
    for index, tensor in enumerate(manifest.tensors):
        space = bases.of(1, index)
        assert space.v is not None
        moved = space.v.astype(np.int64) @ layout.tensor(flat, index).T @ space.u.T.astype(np.int64)
        expected = base[tensor.name] - torch.from_numpy(moved).double() * 2.0 ** (view_exp(manifest, index) + space.exp)
        assert torch.equal(fold_weights(bases, {1: flat}, base)[tensor.name], expected)


class Shuffled(Bases):
    """The columns of every basis in another order: with cores in the same order, the same sums of other terms first."""

    def __init__(self, bases: Bases) -> None:
        self.manifest = bases.manifest
        self._bases = bases

    def name(self, epoch: int) -> str:
        return self._bases.name(epoch)

    def of(self, epoch: int, tensor_index: int) -> Basis:
        found = self._bases.of(epoch, tensor_index)
        return replace(found, u=turned(found.u), v=None if found.v is None else turned(found.v))


def turned(side: Int8Array) -> Int8Array:
    return side[:, other_order(side.shape[1])]


def other_order(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(3).permutation(count)


def shuffled(manifest: Manifest, epochs: dict[int, NDArray[np.int64]]) -> dict[int, NDArray[np.int64]]:
    """The coefficients that mean the same on `Shuffled` bases."""
    layout, result = CoefficientLayout(manifest), {epoch: flat.copy() for epoch, flat in epochs.items()}
    for flat in result.values():
        for index in range(len(manifest.tensors)):
            core = layout.tensor(flat, index)
            core[:] = core[np.ix_(*map(other_order, core.shape))]
    return result


def extreme_coefficients(bases: Bases, epoch: int) -> NDArray[np.int64]:
    """Matrices as large as the manifest allows, which make the most of (U C V^T)[0, 0]."""
    manifest, layout = bases.manifest, CoefficientLayout(bases.manifest)
    largest = (1 << 53) // manifest.method.product_max - 1
    flat = some_coefficients(manifest, epoch, 1_000)
    for index in np.flatnonzero(layout.is_matrix).tolist():
        space = bases.of(epoch, index)
        assert space.v is not None
        layout.tensor(flat, index)[:] = np.outer(np.sign(space.u[0]), np.sign(space.v[0])).astype(np.int64) * largest
    return flat


@pytest.mark.parametrize("kind", ["random", "dense"])
def test_fold__largest_coefficients_summed_in_another_order__gives_the_same_bits(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_opt()
    manifest = model_manifest(model, list(TensorGroup), alpha_exp=-40, clip=10)
    bases = bases_of(kind, manifest)
    manifest = bases.manifest
    epochs = {epoch: extreme_coefficients(bases, epoch) for epoch in range(12)}
    base = base_weights(model, torch.float64)
    folded = fold_weights(bases, epochs, base)
    monkeypatch.setattr(view, "BLOCK_ENTRIES", 40)  # and in other blocks
    other = fold_weights(Shuffled(bases), shuffled(manifest, epochs), base)
    assert all(torch.equal(folded[name], other[name]) for name in folded)

    index = next(index for index, tensor in enumerate(manifest.tensors) if tensor.name.endswith("fc2.weight"))
    layout, total = CoefficientLayout(manifest), 0.0
    for epoch, flat in epochs.items():  # each exact, and added with one rounding
        entry = whole_entry(bases.of(epoch, index), layout.tensor(flat, index))
        assert abs(entry) < 1 << 53
        total += float(entry)
    name, exp = manifest.tensors[index].name, view_exp(manifest, index) + bases.of(0, index).exp
    assert total > 1 << 53  # beyond what fp64 holds exactly
    assert folded[name][0, 0].item() == base[name][0, 0].item() - total * 2.0**exp


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fold__16_bit_weights__are_neighbours_of_the_exact_sum(dtype: torch.dtype) -> None:
    model = tiny_opt()
    manifest = model_manifest(model, list(TensorGroup), alpha_exp=-20)
    bases, epochs = Bases(manifest), {epoch: some_coefficients(manifest, epoch) for epoch in (0, 2)}
    base = base_weights(model, dtype)
    folded = fold_weights(bases, epochs, base)
    exact = fold_weights(bases, epochs, {name: weight.double() for name, weight in base.items()})
    unit = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}[dtype]
    for name, weight in folded.items():
        assert weight.dtype == dtype
        error = (weight.double() - exact[name]).abs()
        assert bool((error <= unit * exact[name].abs() + 2.0**-24).all())
        is_there = exact[name] == exact[name].to(dtype).double()  # nothing to round
        assert torch.equal(weight[is_there].double(), exact[name][is_there])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fold__update_smaller_than_the_last_bit_of_16_bit_weights__is_not_lost(dtype: torch.dtype) -> None:
    manifest = small_manifest(
        rank=8,
        alpha_exp={torch.bfloat16: -31, torch.float16: -34}[dtype],
        tensors=[{"name": "w", "kind": "matrix", "rows": 512, "cols": 512}],
    )
    base = {"w": (0.03 * torch.randn(512, 512, generator=torch.Generator().manual_seed(0))).to(dtype)}
    epochs = {0: some_coefficients(manifest, 0)}
    wide = {"w": base["w"].double()}
    update = fold_weights(Bases(manifest), epochs, wide)["w"] - wide["w"]
    last_bit = 0.03 * {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}[dtype]
    assert update.square().mean().sqrt() < 0.25 * last_bit
    kept = fold_weights(Bases(manifest), epochs, base)["w"].double() - wide["w"]
    assert (kept * update).sum() / update.square().sum() == pytest.approx(1.0, abs=0.05)


def test_fold__late_update_of_an_old_epoch__equals_a_fold_that_had_it_from_the_start() -> None:
    model = tiny_opt()
    manifest = model_manifest(model, [TensorGroup.LINEAR], alpha_exp=-20)
    bases, base = Bases(manifest), base_weights(model, torch.float32)
    late = Envelope(author=Author(b"a" * 32), step=3, seed=5, scalars=(77,), record=b"")
    early = [Envelope(author=Author(b"b" * 32), step=step, seed=step, scalars=(step,), record=b"") for step in (1, 20)]
    one, other = Coefficients(manifest), Coefficients(manifest)
    one.add(early)
    before = fold_weights(bases, {epoch: one.flat(epoch) for epoch in one.epochs()}, base)
    one.add([late])
    other.add([late, *early])
    folds = [fold_weights(bases, {epoch: each.flat(epoch) for epoch in each.epochs()}, base) for each in (one, other)]
    assert all(torch.equal(folds[0][name], folds[1][name]) for name in folds[0])
    assert not all(torch.equal(folds[0][name], before[name]) for name in before)


def test_fold__other_thread_count__gives_the_same_bits() -> None:
    model = tiny_opt()
    manifest = model_manifest(model, list(TensorGroup), core="rademacher", alpha_exp=-20)
    epochs = {epoch: some_coefficients(manifest, epoch) for epoch in (0, 1, 2)}
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append(fold_weights(Bases(manifest), epochs, base_weights(model, torch.float32)))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_fold__epochs_in_other_order__gives_the_same_bits() -> None:
    model = tiny_opt()
    manifest = model_manifest(model, [TensorGroup.LINEAR], alpha_exp=-20)
    epochs = {epoch: some_coefficients(manifest, epoch) for epoch in (2, 0, 1)}
    base = base_weights(model, torch.float32)
    bases = Bases(manifest)
    one, other = fold_weights(bases, epochs, base), fold_weights(bases, dict(sorted(epochs.items())), base)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_fold__no_coefficients__changes_nothing() -> None:
    model = tiny_opt()
    manifest = model_manifest(model, [TensorGroup.LINEAR])
    zeros = np.zeros(CoefficientLayout(manifest).size, dtype=np.int64)
    assert fold_weights(Bases(manifest), {0: zeros}, base_weights(model, torch.float32)) == {}


@torch.inference_mode()
def test_fold__same_coefficients_as_low_rank_terms__gives_the_same_logits() -> None:
    model = tiny_opt()
    shared = SharedModel(model)
    manifest = model_manifest(model, list(TensorGroup), alpha_exp=-14, epsilon_exp=-30, directions=2)
    from_session = some_coefficients(manifest, 0)
    rows = row_batch([Example(tokens=(3, 4, 5, 6), label=0), Example(tokens=(7, 8), label=1)] * 2, 0, shared.device)
    before = shared.label_logits(rows, (3, 4))
    attach(model, manifest.tensors, shared.pass_context)
    terms = live_terms(shared, Bases(manifest), 0, from_session, direction_factors(manifest, 1))
    with shared.pass_context.carrying(terms, 4, rows.tokens.numel()):
        live = shared.label_logits(rows, (3, 4))
    with shared.switch.using(fold_weights(Bases(manifest), {0: from_session}, shared.switch.base)):
        folded = shared.label_logits(rows, (3, 4))
    assert torch.allclose(live, folded, rtol=0, atol=1e-5)
    assert (live - before).abs().max().item() > 1e-2
    assert torch.equal(shared.label_logits(rows, (3, 4)), before)
