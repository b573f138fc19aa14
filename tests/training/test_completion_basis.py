"""The basis of a run of completions: which words its U tells apart, and how long V is before them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from sfnode.training.calibration import found_basis
from sfnode.training.calibration.example_passes import Look, look_at
from sfnode.training.calibration.found_basis import _is_short
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import Example, TaskData
from tests.support.tiny_models import tiny_llama
from tests.training.test_dense_basis import _moving, found_for
from tests.training.test_dense_estimate import some_choices, some_tokens, some_words


def completions(prompt_tokens: int, tokens: tuple[int, ...]) -> TaskData:
    """The same completion of prompts of one length."""
    examples = [Example(tokens=some_tokens(row, prompt_tokens), label=0, candidates=(tokens,)) for row in range(40)]
    return TaskData(label_tokens=(), examples=tuple(examples))


@pytest.mark.parametrize(("prompt_tokens", "expected"), [(1, 0), (2, 0), (3, 160), (9, 160)])
def test_look_at__completions__hears_tokens_between_the_first_one_and_the_prompts_last(
    prompt_tokens: int, expected: int
) -> None:
    data, shared = completions(prompt_tokens, (7, 8)), SharedModel(tiny_llama())
    look = look_at(shared, _moving(shared, data), data, lambda *_: None)
    assert [len(each) for each in look.before] == [expected] * len(look.inputs)
    if prompt_tokens == 3:  # there is only one between
        between = replace(data, examples=tuple(replace(each, tokens=each.tokens[:2]) for each in data.examples))
        there = look_at(shared, _moving(shared, data), between, lambda *_: None)
        torch.testing.assert_close(look.before[0][::4], there.inputs[0][::2], rtol=1e-4, atol=1e-5)


def test_calibrate__tokens_before_completions_a_hundred_times_as_long__v_is_short_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Yes or no as a text, after a chat template: steps leapt at more than a sixtieth of the rate."""
    looks: list[Look] = []

    def with_long_before(*args: Any) -> Look:
        look = look_at(*args)
        looks.append(replace(look, before=[100 * each for each in look.before]))
        return looks[0]

    monkeypatch.setattr(found_basis, "look_at", with_long_before)
    found = found_for(tiny_llama(), completions(9, (7, 8)))
    assert found is not None
    for before, basis in zip(looks[0].before, found.content.tensors, strict=True):
        assert basis.v is not None
        seen = np.square(before.double().numpy() @ (basis.v * 2.0**basis.v_exp)).mean(axis=0)
        assert seen.max() <= 0.25 and seen.max() > 0.1  # V is rounded


def test_look_at__completions__half_of_the_spread_is_that_of_their_own_words() -> None:
    """A model that begins with "No" hardly thinks of "yes" and "no", so U left out what tells them apart."""
    shared, found = SharedModel(tiny_llama()), []
    for word in (7, 8):
        data = completions(9, (word,))
        found.append(look_at(shared, _moving(shared, data), data, lambda *_: None))
    apart_PH = found[0].excess - found[1].excess
    assert apart_PH[0].any() and torch.allclose(apart_PH, apart_PH[:1].expand_as(apart_PH), atol=1e-5)
    for look in found:
        excess_PH = look.excess.double()
        own_HH = (excess_PH.T * look.weight.double()) @ excess_PH / 2
        left = torch.linalg.eigvalsh(look.spread - own_HH)
        assert left.min() > -1e-4 * left.max()  # what the model thinks itself


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (completions(9, (7,) * 16), True),
        (completions(9, (7,) * 17), False),
        (completions(1, (7,) * 3), False),  # no prompt
        (some_choices(), False),
        (some_words(), False),
    ],
)
def test_is_short__completions_of_few_tokens_after_a_prompt__are_alone(data: TaskData, expected: bool) -> None:
    assert _is_short(data) == expected
