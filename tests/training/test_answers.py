"""Answers that a model writes: those of transformers' own generation, whatever passes them; and what draws choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from protocol.subspace.drawn_examples import answer_draws
from sfnode.training.answers import (
    Answers,
    AnswerWriter,
    CachedPasses,
    RepeatedPasses,
    WholePasses,
    passes_of,
    stop_tokens,
)
from sfnode.training.dense_estimate import dense_terms
from sfnode.training.shared_model import SharedModel
from tests.architectures.verdict import loaded
from tests.support.found_bases import dense_bases
from tests.support.tiny_models import VOCABULARY, tiny_gpt2, tiny_llama, tiny_opt
from tests.training.test_dense_estimate import a_core, some_texts, some_tokens

PROMPTS = [some_tokens(seed, count) for seed, count in ((1, 5), (2, 2), (3, 7), (4, 4))]
every_model = pytest.mark.parametrize("make", [tiny_opt, tiny_gpt2, tiny_llama])
every_kind = pytest.mark.parametrize("kind", [CachedPasses, RepeatedPasses, WholePasses])


def endless(make: Any) -> SharedModel:
    """A model that names no token that ends a text."""
    shared = SharedModel(make())
    model: Any = shared.model
    model.generation_config.eos_token_id = model.config.eos_token_id = None
    return shared


def written(shared: SharedModel, kind: Any, stop: int | None = None, draws: Any = None) -> Answers:
    writer = AnswerWriter(shared, {}, stops=() if stop is None else [stop], tokens_max=6)
    writer.passes = kind(shared, {}, ())
    return writer.write(PROMPTS, draws)


@every_model
@every_kind
def test_write_answers__likeliest_tokens__are_those_that_transformers_generates(make: Any, kind: Any) -> None:
    shared = endless(make)
    found = written(shared, kind)
    model: Any = shared.model
    for prompt, answer in zip(PROMPTS, found.tokens, strict=True):
        theirs = model.generate(
            input_ids=torch.tensor([prompt]), max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        assert answer == tuple(theirs[0, len(prompt) :].tolist())
    assert not any(found.has_ended)


@every_model
def test_write_answers__draws__same_answers_with_and_without_a_cache(make: Any) -> None:
    shared, draws = endless(make), answer_draws(7, 4 * 3, 6).reshape(4, 3, 6)
    cached, whole = (written(shared, kind, draws=draws) for kind in (CachedPasses, WholePasses))
    assert cached == whole
    assert len(cached.tokens) == 12
    assert len(set(cached.tokens)) > 6  # answers to one prompt differ


@pytest.mark.parametrize("least", [0.0, 0.9])
def test_write_answers__many_draws__come_as_often_as_the_model_thinks(least: float) -> None:
    """Tokens less likely than a share of the likeliest one never come, and the listener hears so."""
    shared, copies = endless(tiny_llama), 4_000
    draws = answer_draws(1, copies, 1).reshape(1, copies, 1)
    heard: list[torch.Tensor] = []
    writer = AnswerWriter(shared, {}, stops=(), tokens_max=1, least=least)
    found = writer.write(PROMPTS[:1], draws, lambda likely_NV, *_: heard.append(likely_NV))
    counts = np.bincount([answer[0] for answer in found.tokens], minlength=VOCABULARY)
    model: Any = shared.model
    expected = model(input_ids=torch.tensor([PROMPTS[0]])).logits[0, -1].softmax(dim=0).detach().numpy()
    expected = np.where(expected >= least * expected.max(), expected, 0.0)
    expected /= expected.sum()
    assert (expected == 0.0).any() == (least > 0.0)
    assert np.abs(counts / copies - expected).max() < 4 * 0.5 / np.sqrt(copies)
    assert np.allclose(heard[0][0].numpy(), expected, atol=1e-6) and not counts[expected == 0.0].any()


@every_kind
def test_write_answers__token_that_ends_a_text__is_no_part_of_it(kind: Any) -> None:
    shared = endless(tiny_llama)
    without = written(shared, kind).tokens
    stop = without[1][2]
    found = written(shared, kind, stop)
    for answer, whole, has_ended in zip(found.texts(), without, found.has_ended, strict=True):
        assert has_ended == (stop in whole)
        assert answer == (whole[: whole.index(stop)] if has_ended else whole)
    assert {tokens[-1] for tokens, ended in zip(found.tokens, found.has_ended, strict=True) if ended} == {stop}


@every_kind
def test_write_answers__listener__hears_the_inputs_of_whole_passes(kind: Any) -> None:
    """What is heard on the way is what a pass over prompt and answer hears at the same tokens, core included."""
    shared = endless(tiny_llama)
    bases, _ = dense_bases(shared, some_texts())
    names = [tensor.name for tensor in bases.manifest.tensors]
    terms = dense_terms(shared, bases, a_core(bases))
    heard: list[torch.Tensor] = []
    draws = answer_draws(5, len(PROMPTS), 5)[:, None]
    writer = AnswerWriter(shared, terms, stops=(), tokens_max=5)
    writer.passes = kind(shared, terms, names)
    found = writer.write(PROMPTS, draws, lambda _likely, _token, inputs, _alive: heard.append(inputs[-1]))
    for number, (prompt, answer) in enumerate(zip(PROMPTS, found.tokens, strict=True)):
        text = torch.tensor([[*prompt, *answer[:-1]]])
        places = torch.arange(len(prompt) - 1, text.shape[1])
        context = shared.pass_context
        with context.carrying(terms, 1, text.numel()), context.hearing(names, places):
            shared.model(input_ids=text, use_cache=False)
            kept = context.heard(names)
        assert torch.allclose(torch.stack([each[number] for each in heard]), kept[-1])


@every_model
def test_passes_of__cache_that_agrees__is_used(make: Any) -> None:
    assert type(passes_of(SharedModel(make()), {})) is CachedPasses


def test_passes_of__linear_attention_whose_cache_cannot_be_repeated__keeps_it_all_the_same() -> None:
    """Each token cost a pass of the whole text."""
    shared = endless(lambda: loaded("qwen3_5_text"))
    assert type(passes_of(shared, {})) is RepeatedPasses
    draws = answer_draws(7, 4 * 3, 6).reshape(4, 3, 6)
    repeated, whole = (written(shared, kind, draws=draws) for kind in (RepeatedPasses, WholePasses))
    assert repeated == whole


def test_passes_of__cache_that_forgets_the_padding__is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedModel(tiny_llama())
    body: Any = shared.model.base_model
    forward = body.forward

    def forgetful(*, attention_mask: Any = None, position_ids: Any = None, **options: Any) -> Any:
        return forward(**options)

    monkeypatch.setattr(body, "forward", forgetful)
    assert isinstance(passes_of(shared, {}), WholePasses)


def test_stop_tokens__settings_config_and_tokenizer__all_count() -> None:
    model: Any = tiny_llama()
    shared = SharedModel(model)
    model.generation_config.eos_token_id = [5, 6]
    model.config.eos_token_id = 7
    assert stop_tokens(shared, [8]) == {5, 6, 7, 8}
    model.generation_config.eos_token_id = model.config.eos_token_id = None
    assert stop_tokens(shared, ()) == frozenset()
