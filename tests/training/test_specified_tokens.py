"""The program of SPEC 5.5 makes the same examples as the encoder, with every kind of task and of tokenizer."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from protocol.errors import OperatorError
from protocol.run.task import TaskSpec
from sfnode.rows import TaskTemplate
from sfnode.training.task.encoding import PromptEncoder
from tests.support.spec_programs import spec_program
from tests.support.task_specs import CHOICE, CLASSIFICATION, COMPLETION, LONG_WORDS, TEXT, task_spec
from tests.support.tiny_models import tiny_tokenizer
from tests.vectors.token_table import A_WITH_SPECIAL, TOKENS

WORDS = "a film was not very good bad dull bright it".split()
FIELDS = "sentence response text".split()
TASKS: dict[str, tuple[Mapping[str, Any], str]] = {  # and the literal text at the end of the template
    "words": (CLASSIFICATION, " it was"),
    "long words": (LONG_WORDS, " it was"),
    "words that one token sets apart": ({**LONG_WORDS, "label_words": [" not a film", " not very"]}, " it was"),
    "choice": (CHOICE, " it"),
    "choice without a prompt": ({**CHOICE, "template": "", "completion": "{choice}"}, ""),
    "completion": (COMPLETION, " it"),
    "template that ends with a field": ({**COMPLETION, "template": "it {sentence}"}, ""),
    "doubled brace": ({**COMPLETION, "template": "{sentence} {{it}} was"}, " was"),
    "doubled brace at the end": ({**COMPLETION, "template": "it {sentence}, it was }}"}, ""),
    "no field": ({**CHOICE, "template": "it was"}, "it was"),
    "text": (TEXT, ""),
}


@pytest.fixture
def llama_like(shared_folder: Path) -> PreTrainedTokenizerBase:
    """Puts <s> before a text, and a space before whatever stands alone."""
    found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(shared_folder / "models" / "stories260K")
    return found


def test_table_of_the_vectors__texts_and_tokens__are_those_of_the_real_tokenizer(
    llama_like: PreTrainedTokenizerBase,
) -> None:
    assert llama_like.encode("a") == A_WITH_SPECIAL
    assert {text: llama_like.encode(text, add_special_tokens=False) for text in TOKENS} == TOKENS


def program_of(tokenizer: PreTrainedTokenizerBase, task: TaskSpec, tail: str) -> SimpleNamespace:
    """The program, with the names that the text of the section gives it."""

    def t(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    special = list(tokenizer.encode("a", add_special_tokens=True))
    program = spec_program("### 5.5", t=t, TAIL=tail, START=special[: special.index(t("a")[0])], WORDS=[], LEAD=[])
    words = [program.f(task, word) for word in task.label_words]
    common = [
        place for place in range(max(map(len, words), default=0)) if len({str(w[: place + 1]) for w in words}) == 1
    ]
    lead = words[0][: len(common)] if words else []
    program.examples.__globals__.update(WORDS=words, LEAD=lead)
    return program


def texts_of(task: TaskSpec, row: Mapping[str, Any]) -> list[str]:
    choices = [{"choice": choice} for choice in row["choices"]] if task.kind == "choice" else [{}]
    return [task.completion.format(**row, **choice) for choice in choices]


def is_unusable(program: SimpleNamespace, task: TaskSpec, body: int) -> bool:
    """Whether the section's sentence about lines that are not used holds of a prompt of so many tokens."""
    examples = program.made
    candidates = [tokens for _, found in examples for tokens in found]
    shortest = min(map(len, candidates), default=1)  # a label word of one token
    lead = program.examples.__globals__["LEAD"]
    longest = max(map(len, candidates), default=len(lead) if task.label_words and not candidates else 0)
    room = task.max_tokens - len(program.START) - longest
    is_short = any(len(prompt) + shortest < 2 for prompt, _ in examples)
    return shortest == 0 or is_short or (task.kind != "completion" and room < (body > 0))


def assert_same_examples(tokenizer: PreTrainedTokenizerBase, name: str, chance: random.Random) -> int:
    """For one row drawn by chance; how many examples it has, 0 for a row that is not used."""
    fields, tail = TASKS[name]
    task = task_spec({**fields, "max_tokens": chance.randrange(4, 14)})
    assert TaskTemplate(task).end == tail

    def draw() -> str:
        return " ".join(chance.choices(WORDS, k=chance.randrange(9)))

    row = {**{field: draw() for field in FIELDS}, "choices": [draw() for _ in range(2)], "label": 1}
    program, prompt = program_of(tokenizer, task, tail), task.template.format(**row)
    program.made = program.examples(task, prompt, texts_of(task, row))
    try:
        made = PromptEncoder(tokenizer, task).encode(row, "here")
    except OperatorError:
        assert is_unusable(program, task, len(program.t(prompt)))
        return 0
    assert not is_unusable(program, task, len(program.t(prompt)))
    assert program.made == [(list(each.tokens), [list(tokens) for tokens in each.candidates]) for each in made]
    return len(made)


@pytest.mark.parametrize("name", TASKS)
def test_examples__of_a_plain_tokenizer__are_those_of_the_specification(name: str) -> None:
    chance = random.Random(name)
    assert sum(assert_same_examples(tiny_tokenizer(), name, chance) for _ in range(40)) >= 5


@pytest.mark.parametrize("name", TASKS)
def test_examples__of_a_tokenizer_with_a_first_token_and_a_space__are_those_of_the_specification(
    name: str, llama_like: PreTrainedTokenizerBase
) -> None:
    chance = random.Random(name)
    assert sum(assert_same_examples(llama_like, name, chance) for _ in range(60)) >= 1
