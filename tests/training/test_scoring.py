"""Scores of a padded, perturbed, grouped batch against one candidate at a time through a plain model (fp64)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from protocol.crypto.hashing import Author, seed_of
from protocol.errors import NumericError
from protocol.run.manifest import Manifest, TensorKind
from protocol.run.task import TaskKind
from protocol.state.coefficients import CoefficientLayout
from protocol.subspace.basis_file import Bases
from protocol.subspace.directions import direction_factors, scale_exp
from protocol.subspace.drawn_examples import example_indices
from protocol.subspace.quantisation import quantise
from sfnode.training.estimator import Estimator
from sfnode.training.model.loading import output_embedding
from sfnode.training.model.tensor_groups import TensorGroup
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import scoring
from sfnode.training.task.candidates import batch_of
from sfnode.training.task.encoding import Example, RowBatch, TaskData, read_task, row_batch
from sfnode.training.task.scoring import Scores, macro_f1
from tests.support.task_specs import CLASSIFICATION, KINDS, ROWS, write_rows
from tests.support.tiny_models import model_manifest, tiny_gpt2, tiny_llama, tiny_opt, tiny_tokenizer
from tests.training.brute_force import unquantised

STEP = 3
SEED = 0x5EED
CPU = torch.device("cpu")
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "opt": tiny_opt,
    "gpt2": tiny_gpt2,
    "llama": tiny_llama,
    "llama-tied": lambda: tiny_llama(tied=True),
}


def run_of(model: PreTrainedModel, kind: str, *, objective: str = "loss", **method: Any) -> Manifest:
    settings = {"directions": 2, "rank": 4, "epsilon_exp": -8, "core": "rademacher", **method}
    task = {**KINDS[kind], "objective": objective}
    return model_manifest(model, list(TensorGroup), task=task, **settings)


def data_of(manifest: Manifest, kind: str, folder: Path) -> TaskData:
    rows = write_rows(folder / "rows.jsonl", ROWS[kind])
    return read_task(tiny_tokenizer(), manifest.task, rows, rows)


def log_likelihoods(model: PreTrainedModel, prompt: Sequence[int], candidate: Sequence[int]) -> tuple[Tensor, Tensor]:
    """For each token of ``candidate`` that something predicts: its log-likelihood, and whether it is the likeliest."""
    tokens = torch.tensor([[*prompt, *candidate]])
    with torch.inference_mode():
        logits_TV = functional.log_softmax(model(tokens).logits[0, :-1], dim=-1)
    first = max(1, len(prompt))
    targets, logits_TV = tokens[0, first:], logits_TV[first - 1 :]
    return logits_TV.gather(1, targets[:, None])[:, 0], logits_TV.argmax(dim=1) == targets


def plain_scores(model: PreTrainedModel, example: Example) -> tuple[float, int, float]:
    """Loss, prediction and right of one example."""
    found = [log_likelihoods(model, example.tokens, candidate) for candidate in example.candidates]
    means = [likelihoods.mean().item() for likelihoods, _ in found]
    if len(means) == 1:
        return -means[0], 0, found[0][1].double().mean().item()
    prediction = means.index(max(means))
    loss = math.log(math.fsum(math.exp(mean) for mean in means)) - means[example.label]
    return loss, prediction, float(prediction == example.label)


def plain_f1(predictions: Sequence[int], labels: Sequence[int]) -> float:
    """Mean over the labels that occur of 2 TP / (2 TP + FP + FN)."""
    pairs = list(zip(predictions, labels, strict=True))
    found = []
    for label in {*predictions, *labels}:
        both = sum(pair == (label, label) for pair in pairs)
        one = sum(label in pair for pair in pairs) - both
        found.append(2 * both / (2 * both + one))
    return math.fsum(found) / len(found)


def assert_equal(found: Scores, expected: Sequence[tuple[float, int, float]]) -> None:
    losses, predictions, rights = zip(*expected, strict=True)
    assert found.loss.tolist() == pytest.approx(losses, rel=1e-9)
    assert found.prediction.tolist() == list(predictions)
    assert found.right.tolist() == pytest.approx(rights)


@pytest.mark.parametrize("logits_max", [1, 7 * 9, 1 << 24])  # words at a time: one, a few, all
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_scores__batch_of_candidates__equal_one_at_a_time(
    name: str, kind: str, logits_max: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "LOGITS_MAX", logits_max)
    model = MODELS[name]()
    data = data_of(run_of(model, kind), kind, tmp_path)
    shared = SharedModel(model)
    assert shared.shares_prompts(32)
    found = shared.scores(shared.batch(data, data.examples), data.label_tokens)
    assert_equal(found, [plain_scores(model, example) for example in data.examples])


@pytest.mark.parametrize("kind", ["completion", "text"])
def test_scores__completion__loss_is_transformers_own(kind: str, tmp_path: Path) -> None:
    model = tiny_llama()
    data = data_of(run_of(model, kind), kind, tmp_path)
    found = SharedModel(model).scores(batch_of(data, data.examples, 1, CPU), ())
    for loss, example in zip(found.loss.tolist(), data.examples, strict=True):
        tokens = torch.tensor([[*example.tokens, *example.candidates[0]]])
        labels = tokens.clone()
        labels[0, : len(example.tokens)] = -100  # nothing in the prompt is predicted
        with torch.inference_mode():
            assert loss == pytest.approx(model(tokens, labels=labels).loss.item(), rel=1e-6)


def test_scores__completions__can_be_differentiated(tmp_path: Path) -> None:
    """`sfnode basis make` does so once; the plain model says what must come out."""
    model = tiny_llama(tied=True)
    data = data_of(run_of(model, "completion"), "completion", tmp_path)
    example, weight = data.examples[0], output_embedding(model).weight.requires_grad_(True)
    loss = SharedModel(model).scores(batch_of(data, [example], 1, CPU), ()).loss.mean()
    tokens = torch.tensor([[*example.tokens, *example.candidates[0]]])
    labels = tokens.clone()
    labels[0, : len(example.tokens)] = -100
    (found,), (expected,) = (torch.autograd.grad(each, weight) for each in (loss, model(tokens, labels=labels).loss))
    assert found.abs().max() > 1e-3
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6)  # transformers' loss is in fp32


def moved(bases: Bases, base: dict[str, Tensor], direction: int, amount: float) -> dict[str, Tensor]:
    """W + amount * z_d, written out."""
    factors, weights = direction_factors(bases.manifest, SEED), {name: weight.clone() for name, weight in base.items()}
    for index, tensor in enumerate(bases.manifest.tensors):
        space = bases.of(STEP // bases.manifest.method.epoch_steps, index)
        z = space.u.astype(float) @ factors.a[direction, index].astype(float)
        if tensor.kind is TensorKind.MATRIX:
            assert space.v is not None
            z = np.outer(z, space.v.astype(float) @ factors.b[direction, index].astype(float))
        weights[tensor.name] += amount * 2.0 ** scale_exp(bases.manifest.method, tensor) * torch.from_numpy(z)
    return weights


def mean_loss(model: PreTrainedModel, weights: dict[str, Tensor], examples: Sequence[Example]) -> float:
    with torch.inference_mode():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
    return math.fsum(plain_scores(model, example)[0] for example in examples) / len(examples)


@pytest.mark.parametrize("sides", [2, 1])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_estimate__candidates__equals_finite_difference(name: str, kind: str, sides: int, tmp_path: Path) -> None:
    model = MODELS[name]()
    plain = copy.deepcopy(model)
    manifest = run_of(model, kind, sides=sides)
    bases, data = Bases(manifest), data_of(manifest, kind, tmp_path)

    found = unquantised(Estimator(SharedModel(model), bases, data), SEED, STEP)

    base = {weight: parameter.clone() for weight, parameter in plain.named_parameters()}
    rows = [data.examples[index] for index in example_indices(manifest, SEED, 0, len(data.examples)).tolist()]
    share, expected = len(rows) // 2, []
    for direction in range(2):
        members = rows[direction * share : (direction + 1) * share]
        plus, other = (
            mean_loss(plain, moved(bases, base, direction, amount), members)
            for amount in (manifest.epsilon, -manifest.epsilon if sides == 2 else 0.0)
        )
        expected.append((plus - other) / (sides * manifest.epsilon))
    assert min(map(abs, expected)) > 1e-4  # the case is not a trivial one
    assert found == pytest.approx(expected, rel=1e-6)


def test_estimate__same_public_rows_and_seed__can_be_repeated_by_another_node(tmp_path: Path) -> None:
    for kind in KINDS:
        model = tiny_opt()
        manifest = run_of(model, kind, scalar="normalised", clip=127)
        seed = seed_of(manifest.run_id, Author(b"a" * 32), STEP)
        nodes = [
            Estimator(SharedModel(each), Bases(manifest), data_of(manifest, kind, tmp_path))
            for each in (model, tiny_opt())
        ]
        assert nodes[0].estimate(seed, STEP) == nodes[1].estimate(seed, STEP)


@pytest.mark.parametrize("kind", KINDS)
def test_evaluate__every_kind__is_the_mean_of_single_examples(kind: str, tmp_path: Path) -> None:
    model = tiny_llama(tied=True)
    manifest = run_of(model, kind)
    data = data_of(manifest, kind, tmp_path)
    found = Estimator(SharedModel(model), Bases(manifest), data).evaluate()
    expected = [plain_scores(model, example) for example in data.evaluation_examples]
    assert found.rows == len(expected) == 4
    assert found.loss == pytest.approx(math.fsum(loss for loss, _, _ in expected) / 4, rel=1e-9)
    assert found.accuracy == pytest.approx(math.fsum(right for _, _, right in expected) / 4)
    predictions, labels = [each[1] for each in expected], [example.label for example in data.evaluation_examples]
    is_completion = manifest.task.kind is TaskKind.COMPLETION
    assert found.f1 == (None if is_completion else pytest.approx(plain_f1(predictions, labels)))


def test_evaluate__passes_bounded_to_few_tokens__says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_llama()
    manifest = run_of(model, "choice")
    whole = Estimator(SharedModel(model), Bases(manifest), data_of(manifest, "choice", tmp_path)).evaluate()
    monkeypatch.setattr("sfnode.training.estimator.EVALUATION_TOKENS", 20)
    parts = Estimator(SharedModel(tiny_llama()), Bases(manifest), data_of(manifest, "choice", tmp_path)).evaluate()
    assert parts.accuracy == whole.accuracy
    assert parts.loss == pytest.approx(whole.loss, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_label_words__one_token_each__are_computed_as_before_bit_for_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    """The fast path, written out: no likelihood over the vocabulary, no row per label word."""
    model = tiny_opt().to(dtype)
    manifest = model_manifest(model, list(TensorGroup), task=CLASSIFICATION, directions=2, rank=4)
    rows = write_rows(tmp_path / "rows.jsonl", [{**row, "label": index % 2} for index, row in enumerate(ROWS["words"])])
    data = read_task(tiny_tokenizer(), manifest.task, rows, None)
    shared = SharedModel(model)
    session = Estimator(shared, Bases(manifest), data)
    batch = batch_of(data, data.examples, 4, CPU)
    assert isinstance(batch, RowBatch)
    wide = torch.promote_types(dtype, torch.float32)
    terms = some_terms(session, shared)
    with shared.pass_context.carrying(terms, 4, batch.tokens.numel()), torch.inference_mode():
        found = shared.scores(batch, data.label_tokens)
        hidden_NTH = model.base_model(input_ids=batch.tokens, use_cache=False).last_hidden_state
    head, words = output_embedding(model).weight, torch.tensor(data.label_tokens)
    term: Any = terms["model.decoder.embed_tokens.weight"]
    hidden_NH = hidden_NTH[torch.arange(4), batch.last].to(wide)
    logits_NL = functional.linear(hidden_NH, head[words].to(wide))
    mixed = torch.bmm((hidden_NH @ term.v.to(wide)).view(4, -1, 4), term.m.transpose(1, 2)).flatten(0, 1)
    logits_NL += mixed @ term.u[words].to(wide).t()
    assert torch.equal(found.loss, functional.cross_entropy(logits_NL, batch.labels, reduction="none"))
    assert torch.equal(found.prediction, logits_NL.argmax(dim=1))


def some_terms(session: Estimator, shared: SharedModel) -> dict[str, Any]:
    """What the first pass of an estimate carries."""
    seen: dict[str, Any] = {}
    whole = shared.pass_context.carrying

    def carrying(terms: Any, groups: int, tokens: int) -> Any:
        seen.update(terms)
        return whole(terms, groups, tokens)

    shared.pass_context.carrying = carrying  # type: ignore[method-assign]
    unquantised(session, SEED, STEP)
    del shared.pass_context.carrying
    return seen


def test_label_words__one_and_several_tokens__rank_alike_where_both_apply(tmp_path: Path) -> None:
    """Words of one token as candidates: the normaliser cancels, so that both ways give the same losses."""
    model = tiny_opt()
    manifest = model_manifest(model, [TensorGroup.LINEAR], task=CLASSIFICATION, directions=2)
    rows = write_rows(tmp_path / "rows.jsonl", [{**row, "label": index % 2} for index, row in enumerate(ROWS["words"])])
    data, shared = read_task(tiny_tokenizer(), manifest.task, rows, None), SharedModel(model)
    candidates = tuple((token,) for token in data.label_tokens)
    longer = [Example(tokens=each.tokens, label=each.label, candidates=candidates) for each in data.examples]
    with torch.inference_mode():
        fast = shared.scores(row_batch(data.examples, 0, CPU), data.label_tokens)
        slow = shared.scores(batch_of(TaskData(label_tokens=()), longer, 1, CPU), ())
    assert slow.loss.tolist() == pytest.approx(fast.loss.tolist(), rel=1e-12)
    assert slow.prediction.tolist() == fast.prediction.tolist()


def test_estimate__rows_spent__are_one_for_all_candidates_of_an_example(tmp_path: Path) -> None:
    model = tiny_opt()
    manifest = run_of(model, "words")
    session = Estimator(SharedModel(model), Bases(manifest), data_of(manifest, "words", tmp_path))
    assert session.estimate(SEED, STEP).rows == 2 * 8


@pytest.mark.parametrize(
    ("predictions", "labels", "expected"),
    [
        ([0, 1, 1, 0], [0, 1, 1, 0], 1.0),
        ([0, 0, 0, 0], [0, 0, 1, 1], (2 * 2 / (2 * 2 + 2) + 0) / 2),  # all of one label: its F1 is 2/3, the other's 0
        ([0, 1, 1, 1], [0, 0, 1, 1], (2 / 3 + 4 / 5) / 2),
        ([2, 2], [0, 0], 0.0),  # label 1 occurs nowhere and does not count
        ([2, 0], [0, 0], (2 / 3 + 0) / 2),
        ([3, 3, 3], [3, 3, 3], 1.0),
    ],
)
def test_macro_f1__small_groups__equals_the_value_by_hand(
    predictions: list[int], labels: list[int], expected: float
) -> None:
    found = macro_f1(torch.tensor([predictions, labels]), torch.tensor([labels, predictions]))
    assert found.tolist() == pytest.approx([expected, expected])  # F1 does not tell prediction and label apart
    assert found.dtype == torch.float64


@pytest.mark.parametrize("objective", ["accuracy", "f1"])
def test_estimate__objective_without_gradient__is_the_difference_of_the_metric(objective: str, tmp_path: Path) -> None:
    """A step so large that predictions change; with one group's metric written out by hand."""
    model = tiny_llama()
    plain = copy.deepcopy(model)
    manifest = run_of(model, "words", objective=objective, epsilon_exp=-1, directions=1)
    bases, data = Bases(manifest), data_of(manifest, "words", tmp_path)
    session = Estimator(SharedModel(model), bases, data)
    found = unquantised(session, SEED, STEP)
    base = {name: parameter.clone() for name, parameter in plain.named_parameters()}
    rows = [data.examples[index] for index in example_indices(manifest, SEED, 0, len(data.examples)).tolist()]
    plus, minus = (
        1 - metric_by_hand(objective, plain, moved(bases, base, 0, amount), rows)
        for amount in (manifest.epsilon, -manifest.epsilon)
    )
    assert plus != minus  # the case is not a trivial one
    assert found == pytest.approx([(plus - minus) / (2 * manifest.epsilon)])
    assert session.estimate(SEED, STEP).loss == pytest.approx((plus + minus) / 2)


def metric_by_hand(
    objective: str, model: PreTrainedModel, weights: dict[str, Tensor], examples: Sequence[Example]
) -> float:
    mean_loss(model, weights, examples)  # sets the weights
    pairs = [(plain_scores(model, example)[1], example.label) for example in examples]
    if objective == "accuracy":
        return sum(found == label for found, label in pairs) / len(pairs)
    scores = []
    for name in {each for pair in pairs for each in pair}:
        both = sum(pair == (name, name) for pair in pairs)
        scores.append(2 * both / sum(each == name for pair in pairs for each in pair))
    return math.fsum(scores) / len(scores)


def test_estimate__metric_that_no_direction_changes__is_zero_or_a_skipped_step(tmp_path: Path) -> None:
    model = tiny_llama()
    raw = run_of(model, "words", objective="accuracy", epsilon_exp=-30)
    shared = SharedModel(model)
    session = Estimator(shared, Bases(raw), data_of(raw, "words", tmp_path))
    assert session.estimate(SEED, STEP).scalars == (0, 0)
    normalised = run_of(model, "words", objective="accuracy", epsilon_exp=-30, scalar="normalised", clip=127)
    session = Estimator(shared, Bases(normalised), data_of(normalised, "words", tmp_path))
    with pytest.raises(NumericError, match="all projected gradients are zero"):
        session.estimate(SEED, STEP)


def test_estimate__metric_of_a_model_that_overflows__is_not_a_number(tmp_path: Path) -> None:
    """argmax of NaN is a number, so that the losses have to be looked at."""
    model = tiny_opt()
    manifest = run_of(model, "words", objective="accuracy", alpha_exp=0)
    session = Estimator(SharedModel(model), Bases(manifest), data_of(manifest, "words", tmp_path))
    session.set_coefficients(0, np.full(CoefficientLayout(manifest).size, 1 << 40))
    output_embedding(model).weight.fill_(1e308)
    with pytest.raises(NumericError, match="not finite"):
        session.estimate(SEED, STEP)


def test_quantise__gradients_of_a_metric__keep_their_sign(tmp_path: Path) -> None:
    model = tiny_llama()
    manifest = run_of(model, "words", objective="accuracy", epsilon_exp=0, directions=1)
    session = Estimator(SharedModel(model), Bases(manifest), data_of(manifest, "words", tmp_path))
    (gradient,) = unquantised(session, SEED, STEP)
    assert session.estimate(SEED, STEP).scalars == quantise(manifest.method, [gradient])
    assert math.copysign(1, session.estimate(SEED, STEP).scalars[0]) == math.copysign(1, gradient)
