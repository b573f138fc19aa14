"""The demo's model loads offline by its folder, starts at chance, and knows what a review means."""

from __future__ import annotations

import json
from itertools import islice
from random import Random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from sfnode.demo import LABEL_WORDS, PRETRAINED_WORDS, TEMPLATE, data_file, model_folder
from tests.demo.make_data import make_reviews
from tests.demo.make_model import make_tokenizer, pretraining_text

pytestmark = pytest.mark.usefixtures("one_thread")

Loaded = tuple[PreTrainedModel, PreTrainedTokenizerBase]


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    folder = model_folder()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    return model, AutoTokenizer.from_pretrained(folder)


def _accuracy(loaded: Loaded, words: tuple[str, ...], rows: int) -> float:
    """Share of held-out reviews whose label word has the largest logit; one review at a time, so no padding."""
    model, tokenizer = loaded
    ids = [tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in words]
    lines = data_file(split="eval").read_text("utf-8").splitlines()[:rows]
    correct = 0
    for row in map(json.loads, lines):
        tokens = tokenizer(TEMPLATE.format(sentence=row["sentence"]), return_tensors="pt")
        with torch.no_grad():
            logits = model(**tokens).logits[0, -1, ids]
        correct += int(logits.argmax()) == row["label"]
    return correct / len(lines)


def test_demo_tokenizer__label_words__are_one_token_each(loaded: Loaded) -> None:
    tokenizer = loaded[1]
    for word in (*LABEL_WORDS, *PRETRAINED_WORDS):
        tokens = tokenizer(word, add_special_tokens=False)["input_ids"]
        assert len(tokens) == 1
        assert tokenizer.decode(tokens) == word


def test_demo_tokenizer__any_text__starts_like_opt_and_comes_back(loaded: Loaded) -> None:
    tokenizer = loaded[1]
    tokens = tokenizer("The plot was Übel & 5 × odd.")["input_ids"]
    assert tokens[0] == tokenizer.bos_token_id == 2
    assert tokenizer.decode(tokens[1:]) == "The plot was Übel & 5 × odd."


def test_demo_model__longest_prompt__fits_its_positions(loaded: Loaded) -> None:
    model, tokenizer = loaded
    prompts = [TEMPLATE.format(sentence=row.sentence) for rows in make_reviews() for row in rows]
    assert max(map(len, tokenizer(prompts)["input_ids"])) < model.config.max_position_embeddings


def test_demo_model__task_words__start_at_chance(loaded: Loaded) -> None:
    assert 0.45 <= _accuracy(loaded, LABEL_WORDS, 512) <= 0.55


def test_demo_model__words_of_pretraining__show_that_it_understands(loaded: Loaded) -> None:
    assert _accuracy(loaded, PRETRAINED_WORDS, 128) >= 0.95


def test_demo_pretraining__sentences_of_the_data__are_left_out() -> None:
    texts = list(islice(pretraining_text(Random(3), frozenset()), 200))
    excluded = frozenset(text.split(" It was")[0] for text in texts)
    repeated = set(islice(pretraining_text(Random(3), excluded), 200))
    assert repeated.isdisjoint(text for text in texts if " It was" in text)


def test_demo_tokenizer__trained_on_other_text__is_repeatable() -> None:
    texts = list(islice(pretraining_text(Random(4), frozenset()), 2_000))
    first, second = make_tokenizer(texts), make_tokenizer(texts)
    assert first.get_vocab() == second.get_vocab()
