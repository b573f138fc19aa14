"""Some unlike architectures of those that `make architectures` looks at, and how it keeps what it finds."""

from __future__ import annotations

import os
from typing import Any, Final

import pytest
from transformers import AutoModelForCausalLM

from protocol.errors import OperatorError
from sfnode.training.shared_model import SharedModel
from tests.architectures import page
from tests.architectures.every import verdicts
from tests.architectures.tiny_configs import tiny_config
from tests.architectures.verdict import Verdict, verdict_of

SOME: Final = {
    "gpt2": "dense",  # weights stored transposed
    "gemma2": "dense",  # norms between the layers and the stream
    "cohere": "dense",  # attention and MLP side by side, a norm of its own class
    "afmoe": "dense",  # a gate of the stream's width after the attention's output projection; experts
    "falcon_mamba": "dense",  # no attention
    "bart": "dense",  # the last norm is in the last layer
    "phimoe": "dense",  # a router that is a linear layer and returns its choices
    "llama4_text": "dense",  # its `base_model` is the model with its head
    "bert-generation": "refused",  # not causal
}


@pytest.mark.parametrize("kind", SOME)
def test_verdict_of__unlike_architectures__are_what_they_were(kind: str) -> None:
    found = verdict_of(kind)
    assert (found.kind, found.kind == "dense" or bool(found.reason)) == (SOME[kind], True), found
    assert not any(layer.endswith(("gate_proj", "q_proj", "value")) for layer in found.layers)


def test_shared_model__head_of_another_width__is_refused_in_words() -> None:
    config = tiny_config("electra")
    config.is_decoder = True
    make: Any = AutoModelForCausalLM  # carries no types
    with pytest.raises(OperatorError, match="ElectraForCausalLM computes its logits in a way that is not supported"):
        SharedModel(make.from_config(config).eval())


def test_verdicts__look_that_raises_or_dies__is_wrong_and_ends_no_other() -> None:
    def look(name: str) -> Verdict:
        if name == "raises":
            raise AttributeError("no such part")
        if name == "dies":
            os._exit(9)
        return Verdict(kind="drawn", reason="so be it")

    found = dict(verdicts(("raises", "dies", "ends"), look))
    assert {name: each.kind for name, each in found.items()} == {"raises": "wrong", "dies": "wrong", "ends": "drawn"}
    assert "AttributeError" in found["raises"].reason and "died" in found["dies"].reason


def test_fill__other_verdicts__replace_what_stood_between_the_marks() -> None:
    text = "before\n<!-- measured: architectures -->\nold\n<!-- end -->\nafter\n"
    found = {
        "llama": Verdict(kind="dense", layers=("mlp.down_proj",), direct=1.0, whole=(0.9, 0.8)),
        "bert": Verdict(kind="refused", reason="BertLMHeadModel is odd"),
        "roberta": Verdict(kind="refused", reason="RobertaForCausalLM is odd"),
    }
    filled = page.fill(text, found, "5.0")
    assert filled.startswith("before\n") and filled.endswith("<!-- end -->\nafter\n") and "old" not in filled
    assert "| llama | mlp.down_proj | 1.00 | 0.90 | 0.80 |" in filled
    assert (
        "| bert, roberta | the model is odd |" in filled and "Of 3 architectures of transformers 5.0, 1 have" in filled
    )
