"""Classification by label words: prompts from templates, JSONL data, batches. Knows of a model its tokenizer only.

As in MeZO, a prompt is followed by the word of its label, and the label words' log-likelihoods are compared. Each is
one token, so the normaliser over the vocabulary cancels: the loss is a cross entropy over the label words' logits.
"""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from protocol.errors import OperatorError
from protocol.manifest import TaskSpec

LABEL_FIELD = "label"


@dataclass(frozen=True, slots=True)
class Example:
    """Tokens of a prompt, at most max_tokens, and the number of its label."""

    tokens: tuple[int, ...]
    label: int


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Examples padded on the right (a causal model never looks there, so no mask is needed).

    Attributes:
        tokens: int64[N, T]. last: int64[N], position of each prompt's last token. labels: int64[N].
    """

    tokens: Tensor
    last: Tensor
    labels: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskData:
    """What a session works on: the label words' tokens, examples to train and to evaluate on, and a padding token."""

    label_tokens: tuple[int, ...]
    examples: tuple[Example, ...] = ()
    evaluation_examples: tuple[Example, ...] = ()
    pad: int = 0


class PromptEncoder:
    """Turns JSON objects into examples. OperatorError when template or label words do not fit the tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, task: TaskSpec) -> None:
        self._tokenizer = tokenizer
        self._task = task
        self._fields = template_fields(task.template)
        self._prefix = _special_prefix(tokenizer)
        self.label_tokens = tuple(_label_token(tokenizer, word) for word in task.label_words)

    def encode(self, row: object, where: str) -> Example:
        """The example in a decoded JSON value; OperatorError begins with ``where``."""
        if not isinstance(row, dict):
            raise OperatorError(f"{where}: a JSON object with {self._wanted()} is expected")
        for field in (*self._fields, LABEL_FIELD):
            if field not in row:
                raise OperatorError(f"{where}: field {field!r} is missing; the run's template needs {self._wanted()}")
        label, labels = row[LABEL_FIELD], len(self.label_tokens)
        if type(label) is not int or not 0 <= label < labels:
            raise OperatorError(f"{where}: label {label!r} is not a number of 0 ... {labels - 1}")
        if any(not isinstance(row[field], str) for field in self._fields):
            raise OperatorError(f"{where}: {self._wanted()}: every field but the label is a text")
        return Example(tokens=self._tokens(row), label=label)

    def _tokens(self, row: dict[str, str]) -> tuple[int, ...]:
        text = self._task.template.format_map({field: row[field] for field in self._fields})
        body = self._tokenizer.encode(text, add_special_tokens=False)
        kept = body[-(self._task.max_tokens - len(self._prefix)) :]  # a long prompt loses its beginning
        return (*self._prefix, *kept)

    def _wanted(self) -> str:
        return ", ".join(repr(field) for field in (*self._fields, LABEL_FIELD))


def template_fields(template: str) -> tuple[str, ...]:
    """Field names of a template such as "{sentence} It was"; OperatorError when it has none or is malformed."""
    try:
        fields = tuple(name for _, name, _, _ in string.Formatter().parse(template) if name is not None)
    except ValueError as error:
        raise OperatorError(f"template {template!r}: {error}") from None
    if not fields or any(not name.isidentifier() or name == LABEL_FIELD for name in fields):
        raise OperatorError(f'template {template!r}: name fields of the data in braces, e.g. "{{sentence}} It was"')
    return fields


def _special_prefix(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """What the tokenizer puts before a text (OPT: </s>; Llama: <s>; GPT-2: nothing). What it appends is left out."""
    bare = tokenizer.encode("a", add_special_tokens=False)
    whole = tokenizer.encode("a", add_special_tokens=True)
    return tuple(whole[: whole.index(bare[0])]) if bare and bare[0] in whole else ()


def _label_token(tokenizer: PreTrainedTokenizerBase, word: str) -> int:
    tokens = tokenizer.encode(word, add_special_tokens=False)
    if len(tokens) != 1:
        raise OperatorError(
            f"label word {word!r} is {len(tokens)} tokens for this model; choose a word that is one token, with its "
            "leading space if the model's words have one"
        )
    return int(tokens[0])


def read_task(
    tokenizer: PreTrainedTokenizerBase, task: TaskSpec, data: Path | None, evaluation_data: Path | None
) -> TaskData:
    """Read and encode both JSONL files (None: none). OperatorError names file and line of whatever is wrong."""
    encoder = PromptEncoder(tokenizer, task)
    pad = tokenizer.pad_token_id
    return TaskData(
        label_tokens=encoder.label_tokens,
        examples=read_examples(data, encoder) if data else (),
        evaluation_examples=read_examples(evaluation_data, encoder) if evaluation_data else (),
        pad=pad if isinstance(pad, int) else 0,  # never looked at
    )


def read_examples(path: Path, encoder: PromptEncoder) -> tuple[Example, ...]:
    """All examples of a JSONL file. OperatorError with file and line for whatever is wrong with it."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"{path}: cannot be read as UTF-8 text: {error}") from None
    examples = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            examples.append(encoder.encode(_parse(line, f"{path}:{number}"), f"{path}:{number}"))
    if not examples:
        raise OperatorError(f"{path}: no examples; one JSON object per line is expected")
    return tuple(examples)


def _parse(line: str, where: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise OperatorError(f"{where}: not JSON: {error}") from None


def row_batch(examples: Sequence[Example], pad: int, device: torch.device) -> RowBatch:
    """Pad ``examples`` to the longest of them."""
    lengths = [len(example.tokens) for example in examples]
    width = max(lengths)
    rows = [[*example.tokens, *([pad] * (width - length))] for example, length in zip(examples, lengths, strict=True)]
    return RowBatch(
        tokens=torch.tensor(rows, device=device),
        last=torch.tensor(lengths, device=device) - 1,
        labels=torch.tensor([example.label for example in examples], device=device),
    )
