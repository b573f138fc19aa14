"""Dense messages against back-propagation where the direct path is all there is, and the basis that they are in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from protocol.crypto.keys import Signer
from protocol.documents.audit_report import deviation
from protocol.errors import OperatorError
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import TensorSpec
from protocol.state.coefficients import CoefficientLayout, Coefficients, view_exp
from protocol.subspace.bases import Bases
from protocol.subspace.basis_file import encode_basis
from sfnode.demo import model_folder
from sfnode.run.builder import MethodOptions
from sfnode.training.calibration import Calibration
from sfnode.training.calibration.dense import RATE, dense_basis, dense_rank
from sfnode.training.dense_estimate import contrasts, row_gradients
from sfnode.training.estimator import Estimator
from sfnode.training.export.adapter import low_rank_updates
from sfnode.training.model.quantised import choose_precision
from sfnode.training.model.tensors import attach, trainable_tensors
from sfnode.training.shared_model import SharedModel, load_shared
from sfnode.training.task.encoding import Example, TaskData, row_batch
from tests.support.demo_run import demo_run
from tests.support.dense_runs import dense_bases
from tests.support.tiny_models import VOCABULARY, tiny_gpt2, tiny_llama, tiny_opt

LABELS = (3, 7, 11)
CPU = torch.device("cpu")


def some_data(labels: tuple[int, ...] = LABELS, rows: int = 24) -> TaskData:
    """Rows of unlike lengths."""
    chance = np.random.default_rng(5)
    return TaskData(
        label_tokens=labels,
        examples=tuple(
            Example(tokens=tuple(chance.integers(3, VOCABULARY, 3 + row % 7).tolist()), label=row % len(labels))
            for row in range(rows)
        ),
    )


def direct_model() -> PreTrainedModel:
    """A Llama whose residual stream goes straight to the head: what its last MLP adds moves the logits linearly."""
    model: Any = tiny_llama()
    model.model.norm = nn.Identity()
    result: PreTrainedModel = model
    return result


def calibrated(model: PreTrainedModel, data: TaskData | None = None) -> Calibration:
    return Calibration(shared=SharedModel(model), tensors=trainable_tensors(model), data=data or some_data())


def a_core(bases: Bases) -> NDArray[np.int64]:
    """Some coefficients, large enough to move the predictions."""
    layout = CoefficientLayout(bases.manifest)
    core = np.random.default_rng(1).integers(-60_000, 60_000, layout.size)
    return core.astype(np.int64)


def measured(
    calibration: Calibration, bases: Bases, core: NDArray[np.int64], examples: tuple[Example, ...] | None = None
) -> tuple[Tensor, list[Tensor], Tensor]:
    data = calibration.data
    rows = row_batch(examples or data.examples, data.pad, CPU)
    attach(calibration.shared.model, bases.manifest.tensors, calibration.shared.pass_context)
    return row_gradients(calibration.shared, bases, 0, core, rows, data.label_tokens)


def side(entries: NDArray[np.int8] | None, exp: int) -> Tensor:
    assert entries is not None
    return torch.from_numpy(entries).double() * 2.0**exp


@pytest.mark.parametrize("labels", [2, 3, 6, 20])
def test_contrasts__any_number_of_labels__are_orthogonal_and_sum_to_nothing(labels: int) -> None:
    found = contrasts(labels)
    assert torch.allclose(found.T @ found, labels * torch.eye(labels - 1, dtype=torch.float64))
    assert found.sum(dim=0).abs().max() < 1e-12


@pytest.mark.parametrize("is_moved", [False, True])
def test_row_gradients__last_layer_of_a_direct_path__equal_back_propagation(is_moved: bool) -> None:
    calibration = calibrated(direct_model())
    bases, _ = dense_bases(calibration)
    core = a_core(bases) * is_moved
    d, h, losses = measured(calibration, bases, core)
    found = d.T @ h[-1] / len(d)

    model, data = direct_model(), calibration.data
    weights, layout = dict(model.named_parameters()), CoefficientLayout(bases.manifest)
    for index, tensor in enumerate(bases.manifest.tensors):
        basis = bases.of(0, index)
        u, v = side(basis.u, basis.u_exp), side(basis.v, basis.v_exp)
        c = torch.from_numpy(layout.tensor(core, index)).double() * 2.0 ** view_exp(bases.manifest, index)
        weights[tensor.name].data -= u @ c @ v.T
    name = bases.manifest.tensors[-1].name
    weights[name].requires_grad_(True)
    rows = row_batch(data.examples, data.pad, CPU)
    logits = SharedModel(model).label_logits(rows, data.label_tokens)
    loss = functional.cross_entropy(logits, rows.labels)
    (gradient,) = torch.autograd.grad(loss, [weights[name]])
    expected = u.T @ gradient @ v
    assert name.endswith("layers.1.mlp.down_proj.weight")
    assert float((found - expected).norm() / expected.norm()) < 0.01  # U is rounded to bytes
    assert float(losses.mean()) == pytest.approx(float(loss.detach()), rel=1e-9)


def test_row_gradients__core_that_moves__is_in_the_losses() -> None:
    calibration = calibrated(tiny_opt())
    bases, _ = dense_bases(calibration)
    core = a_core(bases)
    assert not torch.allclose(measured(calibration, bases, core)[2], measured(calibration, bases, core * 0)[2])


@pytest.mark.parametrize("make", [tiny_opt, tiny_llama, direct_model])
def test_row_gradients__padding_and_order_of_rows__do_not_matter(make: Any) -> None:
    calibration = calibrated(make())
    bases, _ = dense_bases(calibration)
    core = a_core(bases)
    d, h, _ = measured(calibration, bases, core)
    for number in (0, 5, 23):
        alone = measured(calibration, bases, core, (calibration.data.examples[number],))
        assert torch.allclose(alone[0][0], d[number])
        assert all(torch.allclose(one[0], all_[number]) for one, all_ in zip(alone[1], h, strict=True))
    turned = measured(calibration, bases, core, calibration.data.examples[::-1])
    assert torch.allclose(turned[0].flip(0), d) and torch.allclose(turned[1][-1].flip(0), h[-1])


@pytest.mark.parametrize("make", [tiny_opt, tiny_llama])
def test_row_gradients__layers_that_read_one_token_of_a_row__give_what_they_give_at_all_tokens(make: Any) -> None:
    calibration = calibrated(make())
    bases, _ = dense_bases(calibration)
    core, context = a_core(bases), calibration.shared.pass_context
    fast = measured(calibration, bases, core)
    assert context.read_at_last
    context.read_at_last = frozenset()
    slow = measured(calibration, bases, core)
    assert torch.allclose(fast[0], slow[0])
    assert all(torch.allclose(one, other) for one, other in zip(fast[1], slow[1], strict=True))


def test_row_gradients__tensor_that_no_linear_layer_has__is_refused() -> None:
    calibration = calibrated(direct_model())
    bases, _ = dense_bases(calibration)
    wrong = TensorSpec(**{**_fields(bases.manifest.tensors[-1]), "name": "lm_head.weight"})
    bases.manifest = replace(bases.manifest, tensors=(*bases.manifest.tensors[:-1], wrong))
    data = calibration.data
    core, rows = a_core(bases) * 0, row_batch(data.examples, data.pad, CPU)
    with pytest.raises(OperatorError, match=r"lm_head\.weight cannot have a dense core"):
        row_gradients(calibration.shared, bases, 0, core, rows, data.label_tokens)


def _fields(tensor: TensorSpec) -> dict[str, Any]:
    return {"name": tensor.name, "kind": tensor.kind, "rows": tensor.rows, "cols": tensor.cols}


@pytest.mark.parametrize(("dtype", "most"), [("fp32", 0.0), ("bf16", 0.4), ("fp16", 0.1), ("int8", 0.6)])
def test_estimate__embedded_model_in_other_formats__is_nearly_the_same_message(dtype: str, most: float) -> None:
    data = demo_run(MethodOptions(), 1).session.data
    data = replace(data, examples=data.examples[:128])
    shared = load_shared(choose_precision("fp32"), model_folder(), CPU)
    bases, _ = dense_bases(Calibration(shared=shared, tensors=trainable_tensors(shared.model), data=data))
    other = load_shared(choose_precision(dtype), model_folder(), CPU)
    found = [Estimator(each, bases, data).estimate(17, 0).scalars for each in (shared, other)]
    assert found[0][0] == found[1][0] == 8
    assert deviation(found[1][1:], found[0][1:]) <= most


def test_estimate__fewer_rows__are_the_first_of_the_batch() -> None:
    calibration = calibrated(tiny_opt())
    bases, _ = dense_bases(calibration)
    session = Estimator(calibration.shared, bases, calibration.data)
    state = Coefficients(bases.manifest)
    session.set_coefficients(0, state.core(0))
    one, eight = session.estimate(3, 1, 1), session.estimate(3, 1)
    assert (one.scalars[0], one.rows, eight.scalars[0], eight.rows) == (1, 1, 8, 8)
    assert one.scalars[1:] != eight.scalars[1:]


def test_dense_basis__other_labels__same_basis_and_same_bounds() -> None:
    data = some_data()
    turned = replace(data, examples=tuple(replace(each, label=(each.label + 1) % 3) for each in data.examples))
    found = [dense_basis(calibrated(tiny_llama(), each), 8) for each in (data, turned)]
    first, second = (encode_basis(each.rank, each.content) for each in found)
    assert first == second
    assert found[0].dense == found[1].dense and found[0].learning_rate == found[1].learning_rate


def test_dense_basis__any_direction_of_the_last_core__is_not_more_curved_than_it_says() -> None:
    calibration = calibrated(direct_model())
    bases, found = dense_bases(calibration)
    assert found.learning_rate is not None
    layout, amount = CoefficientLayout(bases.manifest), 2.0 ** view_exp(bases.manifest, 0)
    step = round(1e-2 / amount)
    h = measured(calibration, bases, np.zeros(layout.size, dtype=np.int64))[1][-1]
    steepest = torch.linalg.eigh(h.T @ h).eigenvectors[:, -1].numpy()
    chance, seen = np.random.default_rng(2), []
    for direction in (*chance.normal(size=(4, 2, layout.rank)), np.stack([steepest, 0 * steepest])):
        core = np.zeros(layout.size, dtype=np.int64)
        layout.tensor(core, len(layout.offsets) - 1)[...] = np.rint(step * direction / np.linalg.norm(direction))
        length = amount * float(np.linalg.norm(core))
        losses = [float(measured(calibration, bases, sign * core)[2].mean()) for sign in (-1, 0, 1)]
        seen.append((losses[0] - 2 * losses[1] + losses[2]) / length**2)
    curvature = RATE / found.learning_rate
    assert max(seen) <= 1.02 * curvature
    assert max(seen) > 0.05 * curvature  # the bound is not an idle one


@pytest.mark.parametrize(
    ("labels", "most", "rank"),
    [(1, 16_384, 0), (2, 16_384, 64), (129, 16_384, 64), (129, 4_096, 16), (129, 512, 0), (130, 16_384, 0)],
)
def test_dense_rank__many_labels__is_halved_until_a_message_is_small_enough(
    labels: int, most: int, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfnode.training.calibration.dense.DENSE_NUMBERS_MAX", most)
    calibration = calibrated(tiny_opt())
    many = replace(calibration, data=replace(calibration.data, label_tokens=tuple(range(labels))))
    assert dense_rank(many) == rank


def test_dense_basis__fewer_examples_than_columns__the_others_are_zero() -> None:
    calibration = calibrated(tiny_opt())
    count = 12
    for basis in dense_basis(calibration.only(calibration.data.examples[:count]), 4).bases:
        assert basis.v is not None and not basis.v[:, count:].any() and basis.v[:, :count].any(axis=0).all()


def test_dense_rank__weights_that_are_stored_transposed__there_is_none() -> None:
    assert dense_rank(calibrated(tiny_gpt2())) == 0


def test_low_rank_updates__steps_of_one_basis__are_one_product_and_exact() -> None:
    """An adapter with a rank for each step of a long run could not be loaded."""
    bases, _ = dense_bases(calibrated(tiny_llama()))
    manifest, coefficients, chance = bases.manifest, Coefficients(bases.manifest), np.random.default_rng(0)
    codec = EnvelopeCodec(manifest)
    for step in (0, 1, 3, 7):
        numbers = chance.integers(-9, 10, manifest.numbers - 1).tolist()
        coefficients.add([codec.seal(Signer(bytes([step]) * 32), step, (8, *numbers))])
    found = low_rank_updates(bases, coefficients)
    for index, update in enumerate(found):
        basis = bases.of(0, index)
        core = np.sum([coefficients.core(epoch) for epoch in coefficients.epochs()], axis=0)
        assert basis.v is not None and update.right.shape[0] % manifest.method.rank == 0
        assert update.right.shape[0] <= 2 * manifest.method.rank  # one product, in one or two parts
        whole = basis.u.astype(np.int64) @ coefficients.layout.tensor(core, index) @ basis.v.astype(np.int64).T
        scale = 2.0 ** (view_exp(manifest, index) + basis.exp)
        assert np.array_equal(update.left.astype(np.float64) @ update.right.astype(np.float64), whole * -scale)
