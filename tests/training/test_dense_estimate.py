"""Dense messages against back-propagation where the direct path is all there is, and what they become in the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from protocol.crypto.keys import Signer
from protocol.documents.audit_report import deviation
from protocol.errors import OperatorError
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import TensorKind
from protocol.state.coefficients import CoefficientLayout, Coefficients, view_exp
from protocol.subspace.basis_file import Bases
from protocol.subspace.drawn_examples import examples_in_turn
from sfnode.demo import model_folder
from sfnode.run.manifest_builder import MethodOptions
from sfnode.training.calibration import measured_path
from sfnode.training.dense_estimate import contrasts, row_gradients
from sfnode.training.estimator import Estimator
from sfnode.training.export.adapter import low_rank_updates
from sfnode.training.model.folding import fold_weights
from sfnode.training.model.tensor_groups import attach
from sfnode.training.shared_model import SharedModel, load_shared
from sfnode.training.task.candidates import batch_of
from sfnode.training.task.encoding import Example, TaskData
from tests.support.demo_run import demo_run
from tests.support.found_bases import dense_bases
from tests.support.tiny_models import VOCABULARY, tiny_gpt2, tiny_llama, tiny_opt

LABELS = (3, 7, 11)
CPU = torch.device("cpu")


def some_words(rows: int = 40) -> TaskData:
    """Prompts of unlike lengths, with label words."""
    return TaskData(
        label_tokens=LABELS,
        examples=tuple(Example(tokens=some_tokens(row, 3 + row % 7), label=row % len(LABELS)) for row in range(rows)),
    )


def some_choices(rows: int = 40) -> TaskData:
    """Two or three candidates of unlike lengths."""
    examples = [
        Example(
            tokens=some_tokens(row, 2 + row % 5),
            label=row % 2,
            candidates=tuple(some_tokens(100 * row + each, 1 + (row + each) % 3) for each in range(2 + row % 2)),
        )
        for row in range(rows)
    ]
    return TaskData(label_tokens=(), examples=tuple(examples))


def some_texts(rows: int = 40) -> TaskData:
    """Completions of unlike lengths, some of them without a prompt."""
    examples = [
        Example(tokens=some_tokens(row, row % 4), label=0, candidates=(some_tokens(50 + row, 2 + row % 5),))
        for row in range(rows)
    ]
    return TaskData(label_tokens=(), examples=tuple(examples))


def some_tokens(seed: int, count: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(3, VOCABULARY, count).tolist())


TASKS = {"words": some_words, "choices": some_choices, "texts": some_texts}
every_task = pytest.mark.parametrize("task", list(TASKS))


def direct_model() -> PreTrainedModel:
    """A Llama whose residual stream goes straight to the head: what its last MLP adds moves the logits linearly."""
    model: Any = tiny_llama()
    model.model.norm = nn.Identity()
    result: PreTrainedModel = model
    return result


def a_core(bases: Bases) -> NDArray[np.int64]:
    """Some coefficients, large enough to move the predictions."""
    core = np.random.default_rng(1).integers(-60_000, 60_000, CoefficientLayout(bases.manifest).size)
    return core.astype(np.int64)


def measured(
    shared: SharedModel, data: TaskData, bases: Bases, core: NDArray[np.int64]
) -> tuple[Tensor, list[Tensor], Tensor]:
    attach(shared.model, bases.manifest.tensors, shared.pass_context)
    rows = batch_of(data, data.examples, 1, CPU)
    return row_gradients(shared, bases, core, rows, data.label_tokens)


def side(entries: NDArray[np.int8] | None, exp: int) -> Tensor:
    assert entries is not None
    return torch.from_numpy(entries).double() * 2.0**exp


def test_row_gradients__u_of_a_layer_unlike_the_target__texts_are_measured_along_the_target() -> None:
    data, found = some_texts(), []
    for sign in (1, -1):
        shared = SharedModel(tiny_llama())  # keeps the bases of a run that it has seen
        bases, basis = dense_bases(shared, data)
        turned = replace(basis.content, tensors=tuple(replace(each, u=sign * each.u) for each in basis.content.tensors))
        zeros = np.zeros(CoefficientLayout(bases.manifest).size, dtype=np.int64)
        found.append(measured(shared, data, Bases(bases.manifest, turned), zeros)[0])
    assert torch.equal(*found) and bool(found[0].any())


@pytest.mark.parametrize("labels", [2, 3, 6, 20])
def test_contrasts__any_number_of_labels__are_orthogonal_and_sum_to_nothing(labels: int) -> None:
    found = contrasts(labels)
    assert torch.allclose(found.T @ found, labels * torch.eye(labels - 1, dtype=torch.float64))
    assert found.sum(dim=0).abs().max() < 1e-12


@every_task
@pytest.mark.parametrize("is_moved", [False, True])
def test_row_gradients__last_layer_of_a_direct_path__equal_back_propagation(
    task: str, is_moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_path, "_DAMPING", 0.0)  # each column moves the logits by its whole contrast
    data, shared = TASKS[task](), SharedModel(direct_model())
    bases, _ = dense_bases(shared, data)
    core = a_core(bases) * is_moved
    d, h, losses = measured(shared, data, bases, core)

    model, manifest = direct_model(), bases.manifest
    weights = dict(model.named_parameters())
    base = {tensor.name: weights[tensor.name].detach() for tensor in manifest.tensors}
    for name, folded in fold_weights(bases, {0: core}, base).items():
        weights[name].data.copy_(folded)
    name, basis = manifest.tensors[-1].name, bases.of(0, len(manifest.tensors) - 1)
    weights[name].requires_grad_(True)
    loss = SharedModel(model).scores(batch_of(data, data.examples, 1, CPU), data.label_tokens).loss
    (gradient,) = torch.autograd.grad(loss.sum(), [weights[name]])
    expected = side(basis.u, basis.u_exp).T @ gradient @ side(basis.v, basis.v_exp)
    assert name.endswith("layers.1.mlp.down_proj.weight")
    assert float((d.T @ h[-1] - expected).norm() / expected.norm()) < 0.01  # U is rounded to bytes
    assert torch.allclose(losses, loss.detach(), rtol=1e-9)


@every_task
@pytest.mark.parametrize("make", [tiny_opt, tiny_gpt2, tiny_llama])
def test_row_gradients__core_that_moves__has_the_losses_of_the_folded_weights(make: Any, task: str) -> None:
    """Also where a layer's weight is stored as inputs x outputs, as in GPT-2."""
    data, shared = TASKS[task](), SharedModel(make())
    bases, _ = dense_bases(shared, data)
    core = a_core(bases)
    moved = measured(shared, data, bases, core)[2]
    assert not torch.allclose(moved, measured(shared, data, bases, core * 0)[2])
    assert {each.kind for each in bases.manifest.tensors} == {
        TensorKind.TRANSPOSED if make is tiny_gpt2 else TensorKind.MATRIX
    }
    with shared.switch.using(dict(fold_weights(bases, {0: core}, shared.switch.base))):
        rows = batch_of(data, data.examples, 1, CPU)
        assert torch.allclose(shared.scores(rows, data.label_tokens).loss, moved, rtol=1e-9)


@every_task
@pytest.mark.parametrize("make", [tiny_opt, tiny_llama, direct_model])
def test_row_gradients__padding_and_order_of_rows__do_not_matter(make: Any, task: str) -> None:
    data, shared = TASKS[task](), SharedModel(make())
    bases, _ = dense_bases(shared, data)
    core = a_core(bases)
    d, h, losses = measured(shared, data, bases, core)
    alone = [measured(shared, replace(data, examples=(each,)), bases, core) for each in data.examples]
    assert torch.allclose(torch.cat([each[0] for each in alone]), d)
    assert torch.allclose(torch.cat([each[1][-1] for each in alone]), h[-1])
    assert torch.allclose(torch.cat([each[2] for each in alone]), losses)


@pytest.mark.parametrize("make", [tiny_opt, tiny_llama])
def test_row_gradients__layers_that_read_one_token_of_a_row__give_what_they_give_at_all_tokens(make: Any) -> None:
    data, shared = some_words(), SharedModel(make())
    bases, _ = dense_bases(shared, data)
    core, context = a_core(bases), shared.pass_context
    fast = measured(shared, data, bases, core)
    assert context.read_at_last
    context.read_at_last = frozenset()
    slow = measured(shared, data, bases, core)
    assert torch.allclose(fast[0], slow[0])
    assert all(torch.allclose(one, other) for one, other in zip(fast[1], slow[1], strict=True))


def test_row_gradients__vocabulary_in_parts__give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    data, shared = some_texts(), SharedModel(tiny_llama())
    bases, _ = dense_bases(shared, data)
    whole = measured(shared, data, bases, a_core(bases))
    monkeypatch.setattr("sfnode.training.task.scoring.LOGITS_MAX", 7 * len(whole[0]))
    parts = measured(shared, data, bases, a_core(bases))
    assert torch.allclose(parts[0], whole[0]) and torch.allclose(parts[2], whole[2])


def test_row_gradients__tensor_that_no_linear_layer_has__is_refused() -> None:
    data, shared = some_words(), SharedModel(direct_model())
    bases, _ = dense_bases(shared, data)
    wrong = replace(bases.manifest.tensors[-1], name="lm_head.weight")
    bases.manifest = replace(bases.manifest, tensors=(*bases.manifest.tensors[:-1], wrong))
    rows = batch_of(data, data.examples, 1, CPU)
    with pytest.raises(OperatorError, match=r"lm_head\.weight cannot have a dense core"):
        row_gradients(shared, bases, a_core(bases) * 0, rows, data.label_tokens)


def test_row_gradients__other_number_of_label_words_than_the_core_is_for__is_refused() -> None:
    data, shared = some_words(), SharedModel(tiny_llama())
    bases, _ = dense_bases(shared, data)
    with pytest.raises(OperatorError, match="core has 2 rows, and 2 label words that one token sets apart need 1"):
        measured(shared, replace(data, label_tokens=LABELS[:2]), bases, a_core(bases))


@pytest.fixture(scope="module")
def exact() -> tuple[TaskData, Bases, tuple[int, ...]]:
    """Rows of the demo, a basis that is found with them, and what the embedded model in fp32 measures in it."""
    data = demo_run(MethodOptions(), 1).session.data
    data, shared = replace(data, examples=data.examples[:128]), load_shared("fp32", model_folder(), CPU)
    bases, _ = dense_bases(shared, data)
    return data, bases, Estimator(shared, bases, data).estimate(17, 0).scalars


@pytest.mark.parametrize(("dtype", "most"), [("fp32", 0.0), ("bf16", 0.4), ("fp16", 0.1), ("int8", 0.6)])
def test_estimate__embedded_model_in_other_formats__is_nearly_the_same_message(
    dtype: str, most: float, exact: tuple[TaskData, Bases, tuple[int, ...]]
) -> None:
    data, bases, expected = exact
    found = Estimator(load_shared(dtype, model_folder(), CPU), bases, data).estimate(17, 0).scalars
    assert expected[0] == found[0] == 8
    assert deviation(found[1:], expected[1:]) <= most


@every_task
def test_estimate__fewer_examples__are_the_first_of_the_batch(task: str) -> None:
    data, shared = TASKS[task](), SharedModel(tiny_opt())
    bases, _ = dense_bases(shared, data)
    session = Estimator(shared, bases, data)
    one, eight = session.estimate(3, 1, 1), session.estimate(3, 1)
    assert (one.scalars[0], eight.scalars[0]) == (1, 8)
    assert one.rows <= 3 and eight.rows >= 8  # an example of three choices has three rows
    assert one.scalars[1:] != eight.scalars[1:]


def test_set_coefficients__again_for_one_step__replaces_what_the_step_had() -> None:
    """The worker keeps the sum over all steps, and a late message changes an old one."""
    data, shared = some_words(), SharedModel(tiny_opt())
    bases, _ = dense_bases(shared, data)
    core = a_core(bases) // 60
    session, fresh = Estimator(shared, bases, data), Estimator(shared, bases, data)
    for step, factor in ((0, 1), (1, 2), (0, 3)):
        session.set_coefficients(step, core * factor)
    for step, factor in ((1, 2), (0, 3)):
        fresh.set_coefficients(step, core * factor)
    assert session.estimate(5, 2) == fresh.estimate(5, 2)


@pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2])
def test_low_rank_updates__steps_of_one_basis__are_one_product_and_exact(make: Any) -> None:
    """An adapter with a rank for each step of a long run could not be loaded."""
    bases, _ = dense_bases(SharedModel(make()), some_words())
    manifest, coefficients, chance = bases.manifest, Coefficients(bases.manifest), np.random.default_rng(0)
    codec = EnvelopeCodec(manifest)
    for step in (0, 1, 3, 7):
        numbers = chance.integers(-9, 10, manifest.numbers - 1).tolist()
        coefficients.add([codec.seal(Signer(bytes([step]) * 32), step, (8, *numbers))])
    found = low_rank_updates(bases, coefficients)
    for index, update in enumerate(found):
        basis = bases.of(0, index)
        core = np.sum([coefficients.core(epoch) for epoch in coefficients.epochs()], axis=0)
        assert basis.v is not None and update[1].shape[0] % manifest.method.rank == 0
        assert update[1].shape[0] <= 2 * manifest.method.rank  # one product, in one or two parts
        whole = basis.u.astype(np.int64) @ coefficients.layout.tensor(core, index) @ basis.v.astype(np.int64).T
        scale = 2.0 ** (view_exp(manifest, index) + basis.exp)
        assert np.array_equal(update[0].astype(np.float64) @ update[1].astype(np.float64), whole * -scale)


@every_task
def test_estimate__private_rows_of_an_author__are_those_whose_turn_it_is(task: str) -> None:
    """Two messages of eight are of sixteen different rows; drawn with replacement, they seldom were."""
    data, shared = TASKS[task](), SharedModel(tiny_llama())
    bases, author = dense_bases(shared, data)[0], Signer(b"alice".ljust(32, b".")).author
    data = replace(data, examples=data.examples[:16])
    node = Estimator(shared, bases, data, author=author)
    taken = [examples_in_turn(bases.manifest, author, step, 16, 8).tolist() for step in (0, 1)]
    assert sorted([*taken[0], *taken[1]]) == [*range(16)]
    for step, places in enumerate(taken):
        only = replace(data, examples=tuple(data.examples[place] for place in places))
        alone = Estimator(shared, bases, only, author=author)
        first, second = (each.estimate(99, step).scalars for each in (node, alone))
        assert np.abs(np.subtract(first, second)).max() <= 1 and any(first[1:])
