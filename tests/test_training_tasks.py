"""Prompts, label words and data files: what is wrong with them is said with file and line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from manifests import manifest_data
from protocol.errors import OperatorError
from protocol.manifest import TaskSpec
from sfnode.training.tasks import Example, PromptEncoder, read_task, row_batch, template_fields
from tiny_models import tiny_tokenizer

TASK = TaskSpec(
    **{**manifest_data()["task"], "template": "{sentence} it was", "label_words": ("bad", "good"), "max_tokens": 6}
)
ROW = json.dumps({"sentence": "a good film", "label": 1})


def encoder(**changes: object) -> PromptEncoder:
    return PromptEncoder(tiny_tokenizer(), dataclasses.replace(TASK, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", r"data.jsonl: no examples"),
        ("\n\n", r"data.jsonl: no examples"),
        (ROW + "\n{oops\n", r"data.jsonl:2: not JSON"),
        (ROW + "\n\n[1]\n", r"data.jsonl:3: a JSON object with 'sentence', 'label'"),
        ('{"text": "a", "label": 0}\n', r"data.jsonl:1: field 'sentence' is missing"),
        ('{"sentence": "a"}\n', r"data.jsonl:1: field 'label' is missing"),
        (ROW + "\n" + ROW.replace("1", "2"), r"data.jsonl:2: label 2 is not a number of 0 ... 1"),
        (ROW.replace("1", "true"), r"data.jsonl:1: label True"),
        (ROW.replace('"a good film"', "7"), r"data.jsonl:1: .*is a text"),
    ],
)
def test_examples__malformed_file__names_file_and_line(content: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(content, "utf-8")
    with pytest.raises(OperatorError, match=complaint):
        read_task(tiny_tokenizer(), TASK, path, None)


def test_examples__missing_file__names_it(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"none\.jsonl: cannot be read"):
        read_task(tiny_tokenizer(), TASK, None, tmp_path / "none.jsonl")


def test_examples__bytes_that_are_not_utf8__are_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(OperatorError, match="cannot be read as UTF-8"):
        read_task(tiny_tokenizer(), TASK, path, None)


def test_label_word__several_tokens__is_refused_with_their_number() -> None:
    with pytest.raises(OperatorError, match=r"label word 'very good' is 2 tokens"):
        encoder(label_words=("bad", "very good"))


@pytest.mark.parametrize("template", ["no field", "{", "{} it was", "{0}", "{label}", "{a.b}"])
def test_template__without_proper_field__is_refused(template: str) -> None:
    with pytest.raises(OperatorError, match="template"):
        template_fields(template)


def test_prompt__too_long__keeps_the_end_of_the_template() -> None:
    words = " ".join(["very"] * 20)
    tokens = encoder().encode({"sentence": words, "label": 0}, "here").tokens
    assert len(tokens) == 6
    assert tokens == encoder(max_tokens=64).encode({"sentence": words, "label": 0}, "here").tokens[-6:]


def test_prompt__tokenizer_with_a_first_token__keeps_it_when_cut(shared_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(shared_folder / "models" / "opt-reviews-4m")
    task = dataclasses.replace(TASK, label_words=(" no", " yes"), template="{sentence} It was")
    tokens = PromptEncoder(tokenizer, task).encode({"sentence": "a b c d e f g h i j", "label": 0}, "here").tokens
    whole = tokenizer.encode("a b c d e f g h i j It was")
    first = tuple(whole[: whole.index(tokenizer.encode("a", add_special_tokens=False)[0])])
    assert tokens[: len(first)] == first
    assert tokens[-2:] == tuple(tokenizer.encode(" It was", add_special_tokens=False)[-2:])


def test_row_batch__different_lengths__pads_on_the_right() -> None:
    rows = row_batch([Example(tokens=(5, 6, 7), label=1), Example(tokens=(8,), label=0)], 9, torch.device("cpu"))
    assert rows.tokens.tolist() == [[5, 6, 7], [8, 9, 9]]
    assert rows.last.tolist() == [2, 0]
    assert rows.labels.tolist() == [1, 0]
