"""The basis of a dense core, as it is found for a new run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from protocol.errors import OperatorError
from protocol.run.manifest import TensorKind, TensorSpec
from protocol.state.coefficients import CoefficientLayout, view_exp
from protocol.subspace.basis_file import encode_basis
from protocol.subspace.directions import Int8Array
from sfnode.training import dense_estimate
from sfnode.training.calibration import FoundBasis, calibrate, found_basis
from sfnode.training.calibration.example_passes import Look, look_at
from sfnode.training.calibration.found_basis import _LEVELS_OF_RMS, RATE, _Gradients, _leading_excess
from sfnode.training.calibration.learning_rate import suited_rate
from sfnode.training.calibration.residual_writers import moving_tensors, writers_of
from sfnode.training.model.tensor_groups import trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import Example, TaskData
from tests.support.found_bases import dense_bases
from tests.support.tiny_models import lively, tiny_gpt2, tiny_llama, tiny_opt
from tests.training.test_dense_estimate import (
    TASKS,
    direct_model,
    every_task,
    measured,
    some_choices,
    some_texts,
    some_tokens,
    some_words,
)


def found_for(model: Any, data: TaskData, rows: int = 8, bits: int = 8) -> FoundBasis | None:
    return calibrate(SharedModel(model), trainable_tensors(model), data, rows, bits)


@pytest.mark.parametrize("task", ["words", "choices"])
def test_calibrate__other_labels__same_basis_and_same_settings(task: str) -> None:
    data = TASKS[task]()
    turned = replace(data, examples=tuple(replace(each, label=1 - each.label % 2) for each in data.examples))
    first, second = (found_for(tiny_llama(), each) for each in (data, turned))
    assert first is not None and second is not None
    assert encode_basis(first.content) == encode_basis(second.content)
    assert first.settings == second.settings


def test_calibrate__any_direction_of_the_last_core__is_not_more_curved_than_it_says() -> None:
    data, shared = some_words(), SharedModel(direct_model())
    bases, found = dense_bases(shared, data)
    layout, amount = CoefficientLayout(bases.manifest), 2.0 ** view_exp(bases.manifest, 0)
    step = round(1e-2 / amount)
    h = measured(shared, data, bases, np.zeros(layout.size, dtype=np.int64))[1][-1]
    steepest = torch.linalg.eigh(h.T @ h).eigenvectors[:, -1].numpy()
    chance, seen = np.random.default_rng(2), []
    for direction in (*chance.normal(size=(4, 2, layout.rank)), np.stack([steepest, 0 * steepest])):
        core = np.zeros(layout.size, dtype=np.int64)
        layout.tensor(core, len(layout.offsets) - 1)[...] = np.rint(step * direction / np.linalg.norm(direction))
        length = amount * float(np.linalg.norm(core))
        losses = [float(measured(shared, data, bases, sign * core)[2].mean()) for sign in (-1, 0, 1)]
        seen.append((losses[0] - 2 * losses[1] + losses[2]) / length**2)
    curvature = RATE / found.learning_rate
    assert max(seen) <= 1.02 * curvature
    assert max(seen) > 0.05 * curvature  # the bound is not an idle one


@pytest.mark.parametrize("times", [1_000, 0])
def test_calibrate__first_token_a_thousand_times_as_long__v_does_not_make_it_longer_than_others(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SmolLM2's block 11: with 16 authors of pooled rows the second step took SST-2's loss from 0.9 to 9.5."""
    looks: list[Look] = []

    def with_long_first(*args: Any) -> Look:
        look = look_at(*args)
        long = [times * x.norm(dim=1).mean() * torch.eye(x.shape[1])[3].double() for x in look.inputs]
        looks.append(replace(look, first=long))
        return looks[0]

    monkeypatch.setattr(found_basis, "look_at", with_long_first)
    found = found_for(tiny_llama(), some_words())
    assert found is not None
    for x, v in zip(looks[0].inputs, _entries_of_v(found), strict=True):
        usual = float(np.linalg.norm(x.numpy() @ v, axis=1).mean())
        at_first = 1_000 * float(x.norm(dim=1).mean()) * float(np.linalg.norm(v[3].astype(float)))
        assert (at_first <= 10 * usual) == (times > 0)


def test_look_at__some_prompts__first_is_the_mean_input_at_their_first_tokens() -> None:
    data, shared = some_words(), SharedModel(tiny_llama())
    begun = replace(data, examples=tuple(replace(each, tokens=each.tokens[:1]) for each in data.examples))
    whole, only_first = (look_at(shared, _moving(shared, data), each, lambda *_: None) for each in (data, begun))
    for first, x in zip(whole.first, only_first.inputs, strict=True):
        torch.testing.assert_close(first, x.double().mean(dim=0), rtol=1e-4, atol=1e-6)
    assert not any(each.any() for each in only_first.first), "prompts of one token: it is what is looked at"


@every_task
def test_calibrate__a_step_down_the_gradient__lowers_the_loss(task: str) -> None:
    data, shared = TASKS[task](), SharedModel(tiny_llama())
    bases, found = dense_bases(shared, data)
    layout, amount = CoefficientLayout(bases.manifest), 2.0 ** view_exp(bases.manifest, 0)
    d, h, before = measured(shared, data, bases, np.zeros(layout.size, dtype=np.int64))
    mean = torch.cat([(d.T @ each).flatten() for each in h]) / len(data.examples)
    core = np.zeros(layout.size, dtype=np.int64)
    core[1:] = np.rint((mean * found.learning_rate / 2 / amount).numpy())
    after = measured(shared, data, bases, core)[2]
    assert float(after.mean()) < float(before.mean())


def test_calibrate__later_layers_that_change_a_move__are_in_the_rate() -> None:
    data, shared = some_words(), SharedModel(tiny_llama())
    bases, found = dense_bases(shared, data)
    layout, amount = CoefficientLayout(bases.manifest), 2.0 ** view_exp(bases.manifest, 0)
    d, h, before = measured(shared, data, bases, np.zeros(layout.size, dtype=np.int64))
    mean = torch.cat([(d.T @ each).flatten() for each in h]) / len(data.examples)
    core = np.zeros(layout.size, dtype=np.int64)
    core[1:] = np.rint((mean * 0.02 / float(mean.square().sum()) / amount).numpy())
    arriving = float((before - measured(shared, data, bases, core)[2]).mean()) / 0.02
    curvature = float(torch.linalg.matrix_norm(torch.cat(h, dim=1), ord=2)) ** 2 / len(data.examples)
    assert abs(arriving - 1) > 0.05  # else the test would show nothing
    assert found.learning_rate == pytest.approx(RATE / curvature / arriving, rel=0.02)


def _entries_of_v(found: FoundBasis) -> list[Int8Array]:
    return [each.v for each in found.content.tensors if each.v is not None]


def _target_and_h(found: FoundBasis, look: Look) -> tuple[torch.Tensor, torch.Tensor]:
    """The target, [H, r], and V^T x of all layers, [P, sum of k]; both fp64."""
    content, h = found.content, []
    for x, basis, v in zip(look.inputs, content.tensors, _entries_of_v(found), strict=True):
        h.append(x.double() @ torch.from_numpy(v).double() * 2.0**basis.v_exp)
    return torch.from_numpy(content.target).double() * 2.0**content.target_exp, torch.cat(h, dim=1)


def _moving(shared: SharedModel, data: TaskData) -> tuple[TensorSpec, ...]:
    return moving_tensors(writers_of(shared, trainable_tensors(shared.model)), has_label_words=bool(data.label_tokens))


def test_calibrate__candidates_of_unlike_lengths__no_column_bends_the_loss_more_than_the_others() -> None:
    """What moves all candidates alike cancels only where they are read at the same tokens."""
    data = some_choices()
    unlike, shared = found_for(tiny_llama(), data), SharedModel(tiny_llama())
    look = look_at(shared, _moving(shared, data), data, lambda _done, _total: None)
    assert unlike is not None
    u, h = _target_and_h(unlike, look)
    usual = float(torch.linalg.matrix_norm(h * look.weight.double().sqrt()[:, None], ord=2)) ** 2 / len(look.example)
    bends = [_Gradients(look, u, h).curvature(slice(column, column + 1)) for column in range(u.shape[1])]
    whole = [
        _Gradients(look, _leading_excess(look, 16), h).curvature(slice(each, each + 1)) for each in range(u.shape[1])
    ]
    assert max(bends) <= 1.05 * usual < max(whole)  # U is rounded to bytes


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_calibrate__fewer_bits__same_basis_with_a_unit_that_suits_them(bits: int) -> None:
    """Half of a unit is at most 0.83 of the messages' rms, and the clip is beyond most of their numbers."""
    data, shared = some_words(), SharedModel(direct_model())
    found, usual = found_for(direct_model(), data, bits=bits), found_for(direct_model(), data)
    assert found is not None and usual is not None
    assert encode_basis(found.content) == encode_basis(usual.content) and found.learning_rate == usual.learning_rate
    look = look_at(shared, _moving(shared, data), data, lambda _done, _total: None)
    u, h = _target_and_h(found, look)
    messages = _Gradients(look, u, h).drawn_messages(8) * 2.0**-found.settings.quantum_exp
    rms = float(messages.square().mean().sqrt())
    least = _LEVELS_OF_RMS[bits]
    assert least <= rms < 2 * least and found.settings.clip == (1 << bits - 1) - 1
    assert found.settings.clip > 1.6 * rms or bits == 2
    # None but the longest are shortened before they are rounded
    length_max = np.sqrt(found.settings.energy_max) - np.sqrt(messages.shape[1]) / 2
    assert length_max == pytest.approx(1.4 * float(messages.norm(dim=1).median()), rel=0.02)


def test_calibrate__rate_that_leaps_too_far__is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    data = some_words()
    usual, choices = found_for(tiny_llama(), data), found_for(tiny_llama(), some_choices())
    monkeypatch.setattr("sfnode.training.calibration.learning_rate._RISE_MAX", -2)  # no rate is low enough
    halved, halved_choices = found_for(tiny_llama(), data), found_for(tiny_llama(), some_choices())
    assert usual is not None and halved is not None and choices is not None and halved_choices is not None
    assert usual.rows == (2 + 9) * 40 and halved.rows == (2 + 15) * 40
    assert halved.learning_rate == usual.learning_rate / 2**8
    assert usual.settings.noise_rows == halved.settings.noise_rows == 64, "the path of a move was measured"
    assert (choices.settings.noise_rows, halved_choices.settings.noise_rows) == (128, 64), "a lone author leaps with 16"


@pytest.mark.parametrize(("task", "tries"), [("words", 12), ("choices", 15)])
def test_calibrate__rate_is_tried__progress_goes_on_to_the_end(
    task: str, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still at a quarter of the work, for minutes: the passes that try the rate did not count.

    Choices begin at eight times the rate by theory: six answers of several words had a fourth of what suits them.
    """
    monkeypatch.setattr("sfnode.training.calibration.learning_rate._RISE_MAX", -2)  # all tries fail
    model, data, seen = tiny_llama(), TASKS[task](), list[tuple[int, int]]()
    found = calibrate(
        SharedModel(model), trainable_tensors(model), data, 8, 8, lambda done, total: seen.append((done, total))
    )
    assert found is not None
    assert seen == sorted(seen) and all(done <= total for done, total in seen)
    assert (seen[-1][0] == found.rows) is (task == "words")  # one row an example: each pass was seen
    assert len({total for _, total in seen}) == tries  # each further try is added when it is needed


def test_calibrate__rows_alike_with_two_of_many_labels__steps_do_not_leap_to_and_fro() -> None:
    """Counting words, ten labels: SmolLM2's loss rose from 2.6 to 4.8, though the first step had lowered it."""
    examples = tuple(Example(tokens=some_tokens(row % 4, 5 + row % 4), label=row // 4 % 2) for row in range(40))
    data, shared = TaskData(label_tokens=tuple(range(20, 36)), examples=examples), SharedModel(direct_model())
    bases, found = dense_bases(shared, data)
    layout, amount = CoefficientLayout(bases.manifest), 2.0 ** view_exp(bases.manifest, 0)
    core, losses = np.zeros(layout.size, dtype=np.int64), []
    for _ in range(6):
        d, h, loss = measured(shared, data, bases, core)
        losses.append(float(loss.mean()))
        mean = torch.cat([(d.T @ each).flatten() for each in h]) / len(data.examples)
        core[1:] += np.rint((mean * found.learning_rate / 2 / amount).numpy()).astype(np.int64)
    assert max(losses[2:]) < losses[1] < losses[0] and losses[-1] < losses[0] / 2, losses


def test_calibrate__steps_that_teach_what_the_next_rows_deny__rate_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    """On TREC three steps on the same 64 rows lowered their loss; the run's own rose from 2.6 to 14.3."""
    shares: list[float] = []

    def noted(*args: Any) -> tuple[float, float, int]:
        rate, share, rows = suited_rate(*args)
        shares.append(share)
        return rate, share, rows

    def share_of_the_rate(label_of: Callable[[int], int]) -> float:
        rows = tuple(Example(tokens=some_tokens(row // 2 % 4, 5), label=label_of(row)) for row in range(128))
        assert found_for(direct_model(), TaskData(label_tokens=(20, 21), examples=rows)) is not None
        return shares[-1]

    monkeypatch.setattr(found_basis, "suited_rate", noted)
    assert share_of_the_rate(lambda row: row // 2 % 2) == 1, "every second row has the texts and labels of the others"
    assert share_of_the_rate(lambda row: row % 2) < 1, "the others have the opposite labels"


@pytest.mark.parametrize(
    ("ratios", "is_whole"),
    [((1.12, 1.05, 0.98, 0.9, 0.9, 0.9), True), ((1.12,) * 6, False), ((0.5, 0.8, 0.4, 0.4, 0.4, 0.4), False)],
    ids=["worse_at_first", "worse_for_good", "a_leap"],
)
def test_calibrate__steps_down_noisy_gradients__may_be_worse_at_first_and_may_not_leap(
    ratios: Sequence[float], is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run on RTE got a thirty-second of its rate, since its first step raised the loss by an eighth."""
    first: list[torch.Tensor] = []
    passes, shares = itertools.count(), []

    def scripted(*args: Any) -> Any:
        heard, number = dense_estimate.hear(*args), next(passes)
        if number < 4:  # the parts of the examples, before any step; two small steps come then
            first.append(heard.loss)
        step = number - 5
        return replace(heard, loss=ratios[step - 1] * first[step % 4]) if 1 <= step <= 6 else heard

    def noted(*args: Any) -> tuple[float, float, int]:
        found = suited_rate(*args)
        shares.append(found[1])
        return found

    monkeypatch.setattr("sfnode.training.calibration.learning_rate.hear", scripted)
    monkeypatch.setattr(found_basis, "suited_rate", noted)
    assert found_for(tiny_llama(), some_words(256)) is not None
    assert (shares[0] == 1) is is_whole


def test_calibrate__passes_with_a_move_that_round_otherwise__same_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a card in 16 bits runs began as if their rate were three times what it should be."""
    data = TASKS["words"]()
    usual = dense_bases(SharedModel(tiny_llama()), data)[1]

    def worse_with_a_move(shared: Any, names: Any, terms: Any, *others: Any) -> Any:
        heard = dense_estimate.hear(shared, names, terms, *others)
        return replace(heard, loss=heard.loss + 0.015) if terms else heard

    monkeypatch.setattr("sfnode.training.calibration.learning_rate.hear", worse_with_a_move)
    found = dense_bases(SharedModel(tiny_llama()), data)[1]
    assert found.learning_rate == pytest.approx(usual.learning_rate, rel=1e-6)


@pytest.mark.parametrize(
    ("labels", "most", "rank"),
    [(1, 16_384, 0), (2, 16_384, 64), (48, 16_384, 64), (48, 1_024, 16), (48, 256, 0)],
)
def test_calibrate__many_labels__rank_is_halved_until_a_message_is_small_enough(
    labels: int, most: int, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfnode.training.calibration.found_basis.DENSE_NUMBERS_MAX", most)
    data = some_words()
    examples = tuple(replace(each, label=each.label % labels) for each in data.examples)
    found = found_for(tiny_opt(), replace(data, label_tokens=tuple(range(labels)), examples=examples))
    assert (0 if found is None else found.settings.rank) == rank


def test_calibrate__more_words_than_a_core_has_rows__there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfnode.training.calibration.found_basis.RANK_MAX", 1)
    assert found_for(tiny_opt(), some_words()) is None


def test_calibrate__few_examples__there_is_none() -> None:
    assert found_for(tiny_opt(), some_words(31)) is None
    assert found_for(tiny_opt(), some_words(32)) is not None


def test_calibrate__fewer_examples_than_columns__the_others_are_zero() -> None:
    count = 32
    found = found_for(tiny_opt(), some_words(count), 4)
    assert found is not None
    for v in _entries_of_v(found):
        assert not v[:, count:].any() and v[:, : min(count, len(v))].any(axis=0).all()


def test_calibrate__weights_that_are_stored_transposed__are_named_so() -> None:
    found = found_for(tiny_gpt2(), some_words())
    assert found is not None
    assert {tensor.kind for tensor in found.tensors} == {TensorKind.TRANSPOSED}
    assert {len(each.u) for each in found.content.tensors} == {tensor.cols for tensor in found.tensors}


def test_calibrate__layer_that_sees_nothing_but_zeros__has_a_rate() -> None:
    """A bug once: no core of a layer that somebody had pruned moves, and its length divided by zero."""
    config = tiny_llama().config
    config.num_hidden_layers = 6
    model: Any = lively(LlamaForCausalLM(config))
    model.model.layers[-1].mlp.up_proj.weight.zero_()
    found = found_for(model, some_words())
    assert found is not None and 0.0 < found.learning_rate < 100.0
    assert [each.v is not None and bool(each.v.any()) for each in found.content.tensors] == [True, True, True, False]


def test_calibrate__long_completions__some_tokens_of_each_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfnode.training.calibration.example_passes._TOKENS_MAX", 80)
    assert found_for(tiny_llama(), some_texts()) is not None


def test_calibrate__label_words_that_begin_alike__rate_is_one_of_tokens_that_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With "class A" to "class F" and 256 rows, one token of each was looked at: the first, which tells nothing."""
    begun = some_choices()
    alike = [
        replace(each, candidates=tuple((9, *some_tokens(100 * row + at, 2)) for at in range(3)))
        for row, each in enumerate(begun.examples)
    ]
    monkeypatch.setattr("sfnode.training.calibration.example_passes._TOKENS_MAX", 3 * len(alike))
    found = found_for(tiny_llama(), replace(begun, examples=tuple(alike)))
    assert found is not None and found.learning_rate < 1e4


def test_calibrate__model_that_overflows__is_refused() -> None:
    model: Any = tiny_llama()
    model.model.layers[1].mlp.down_proj.weight.data.fill_(float("inf"))
    with pytest.raises(OperatorError, match="not finite"):
        found_for(model, some_words())
