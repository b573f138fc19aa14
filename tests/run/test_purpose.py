"""What a run's model learns, in a sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocol.run import TaskKind
from sfnode.run.purpose import purpose_of
from tests.support.manifests import small_manifest
from tests.support.reward_runs import rewarded

TASK = small_manifest().task


def test_purpose__labels__are_named_with_the_first_line_of_the_prompt() -> None:
    task = replace(TASK, template="\n {a}  is\nlong", label_words=(" no", " yes", " who knows"))
    assert purpose_of(task) == "to answer no, yes or who knows to: {a} is"
    many = replace(TASK, label_words=tuple(f" {number}" for number in range(40)))
    assert purpose_of(many).startswith("to answer 0, 1, 2, 3, 4 or another of 40 words to: ")


@pytest.mark.parametrize(
    ("kind", "template", "completion", "told"),
    [
        (TaskKind.COMPLETION, "", "{text}", "to write {text}"),
        (TaskKind.COMPLETION, "Q: {question}", " {answer}", "to write {answer}, after: Q: {question}"),
        (TaskKind.CHOICE, "{question}", " {choice}", "to choose the right one of a row's texts, after: {question}"),
    ],
)
def test_purpose__texts__are_told_by_their_fields(kind: TaskKind, template: str, completion: str, told: str) -> None:
    task = replace(TASK, kind=kind, template=template, completion=completion, label_words=())
    assert purpose_of(task) == told


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\n{prompt}<|im_end|>\n", "{prompt}"),
        ("<|user|>\n\nIs {a} in {b}?<|eot|><|role|>assistant<|end|>\n\n", "Is {a} in {b}?"),  # Llama 3 has one line
        ("<|role|>user<|end|>{a}<|sep|>{b}<|stop|>\n<|role|>assistant<|end|>", "{a}<|sep|>{b}"),
        ("<start_of_turn>user\nWhere is {city}?<end_of_turn>\n", "Where is {city}?<end_of_turn>"),
        ("<s>[INST] {prompt} [/INST]", "<s>[INST] {prompt} [/INST]"),
        ("Which city?\n{prompt}", "Which city?"),
    ],
)
def test_purpose__chat__is_told_by_what_the_user_says(template: str, prompt: str) -> None:
    """A fault once: `status` and `join` said that a run with SmolLM2 learns "to answer to: <|im_start|>system"."""
    assert purpose_of(replace(rewarded(TASK), template=template)).startswith(f"to answer to: {prompt}. An answer gets")


def test_purpose__rewards__tell_the_rule() -> None:
    assert " An answer gets 1 if the answer " in purpose_of(rewarded(TASK))
    check = {"sum": [[3, {"contains": "a"}], [1, {"words": [1, 2]}]]}
    parts = rewarded(TASK, {"check": check, "samples": 2, "tokens": 4})
    assert " An answer gets 0.75 if it contains 'a' + 0.25 if it has 1 to 2 words; " in purpose_of(parts)


def test_purpose__very_long_line__is_cut_between_words() -> None:
    told = purpose_of(replace(TASK, template="{sentence} " + "word " * 60))
    assert told.endswith("word ...") and len(told) < 150
