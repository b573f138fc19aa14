"""Vectors of data and tokens (SPEC 5.5): from lines of JSON to prompts and candidates, with two tokenizers."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from protocol.errors import OperatorError
from protocol.run.task import TaskSpec
from sfnode.training.task.encoding import PromptEncoder, read_examples
from tests.support.task_specs import task_spec
from tests.vectors.notation import Case, Document, case, compact, document
from tests.vectors.token_table import A_WITH_SPECIAL, TOKENS

_NO_START, _START = [97], [256, 97, 257]  # the tokens of "a" with the special ones
_WORDS = {"kind": "classification", "template": "{text} is", "completion": "", "label_words": ["0", "1"]}
_LONG = {**_WORDS, "label_words": [" bad", " good", " bath"]}
_SET_APART = {**_WORDS, "label_words": [" bad", " good"]}
_CHOICE = {"kind": "choice", "template": "{text}:", "completion": " {choice}.", "label_words": []}
_COMPLETION = {"kind": "completion", "template": "{text}:", "completion": "{answer}", "label_words": []}
_TEXT = {"kind": "completion", "template": "", "completion": "{text}", "label_words": []}
_RULE = json.dumps({"check": {"exact": "{answer}"}, "samples": 2, "tokens": 3})
_WIDE = "\U0001f600"  # four bytes, and two units of UTF-16
_REWARD = {"kind": "reward", "template": "{text}?", "completion": _RULE, "label_words": []}


class ByteTokenizer:
    """Has the bytes of UTF-8 as tokens, and perhaps special ones around them."""

    pad_token_id = None

    def __init__(self, special: list[int], end: int | None = None) -> None:
        self._special, self.eos_token_id = special, end

    def encode(self, text: str, *, add_special_tokens: bool, verbose: bool = False) -> list[int]:
        before, after = self._special[: self._special.index(97)], self._special[self._special.index(97) + 1 :]
        plain = list(text.encode("utf-8"))
        return [*before, *plain, *after] if add_special_tokens else plain


class TableTokenizer:
    """Knows what a real tokenizer makes of the texts of these vectors."""

    pad_token_id = None
    eos_token_id = None

    def encode(self, text: str, *, add_special_tokens: bool, verbose: bool = False) -> list[int]:
        return A_WITH_SPECIAL if add_special_tokens else TOKENS[text]


def tokens() -> Document:
    """tokens.json"""
    parts = (_templates(), _lines(), _rows(), _cut(), _told(), _long(), _real())
    about = "From data to tokens: SPEC 5.5. The real tokenizer is that of stories260K, 512 tokens, of Llama's kind"
    return document(about, [each for part in parts for each in part], table=TOKENS)


def _case(
    name: str,
    task: Mapping[str, Any],
    data: bytes | list[object],
    max_tokens: int = 16,
    special: list[int] | None = None,
    end: int | None = None,
) -> Case:
    """Of lines, or of rows that are written as such."""
    if isinstance(data, list):
        data = b"".join(json.dumps(row, ensure_ascii=False).encode("utf-8") + b"\n" for row in data)
    chosen = ByteTokenizer(_NO_START if special is None else special, end)
    written = {"special": _NO_START if special is None else special, "tokens": "bytes"}
    written |= {} if end is None else {"end": [end]}
    return _made(name, {**task, "max_tokens": max_tokens}, data, cast("PreTrainedTokenizerBase", chosen), written)


def _made(
    name: str, task: dict[str, Any], data: bytes, tokenizer: PreTrainedTokenizerBase, written: dict[str, Any]
) -> Case:
    given = {"task": task, "tokenizer": written, "data": compact(data, _WIDE.encode())}
    return case(name, "examples", given, _examples(tokenizer, task, data))


def _examples(tokenizer: PreTrainedTokenizerBase, task: dict[str, Any], data: bytes) -> dict[str, Any]:
    try:
        encoder = PromptEncoder(tokenizer, _spec(task))
    except OperatorError:
        return {"words": None, "examples": None}
    return {"words": [list(word) for word in encoder.words], "examples": _read(encoder, data)}


def _read(encoder: PromptEncoder, data: bytes) -> list[object] | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.jsonl"
        path.write_bytes(data)
        try:
            made = read_examples(path, encoder, is_specified=True)
        except OperatorError:
            return None
    return [
        {"prompt": list(each.tokens), "candidates": [list(tokens) for tokens in each.candidates], "label": each.label}
        for each in made
    ]


def _spec(task: Mapping[str, Any]) -> TaskSpec:
    return task_spec({**task, "label_words": list(task["label_words"])})


# --- templates


def _templates() -> Iterator[Case]:
    row = {"text": "a b", "answer": "c", "choices": ["x", "y"], "label": 1, "_1": "u", "caf\u00e9": "v", "a-b": "w"}
    row["\u30fb\U0001e4f0"] = "x"
    for name, task in {
        "label words of one token": _WORDS,
        "label words of several tokens": _LONG,
        "label words that their second token sets apart": _SET_APART,
        "label words that their first token sets apart": {**_WORDS, "label_words": ["bad", "good", "c"]},
        "a label word that another one begins with": {**_WORDS, "label_words": ["bad", "b"]},
        "a label word that all begin with": {**_WORDS, "label_words": ["ba", "bad", "bat"]},
        "a choice": _CHOICE,
        "a completion": _COMPLETION,
        "a text": _TEXT,
        "a reward": _REWARD,
        "doubled braces": {**_COMPLETION, "template": "{{{text}}}", "completion": "}}{answer}{{"},
        "a field twice": {**_COMPLETION, "template": "{text}{text}"},
        "a name that begins with _, one beyond ASCII": {**_COMPLETION, "template": "{_1}{caf\u00e9}"},
        "a choice without a prompt": {**_CHOICE, "template": ""},
        "a choice with a field in what follows": {**_CHOICE, "completion": "{answer}{choice}"},
        "a classification without a field": {**_WORDS, "template": "is"},
        "a reward without a field": {**_REWARD, "template": "is"},
        "a completion without a field": {**_COMPLETION, "completion": "c"},
        "a choice without one in what follows": {**_CHOICE, "completion": "{answer}"},
        "a choice in a completion": {**_COMPLETION, "completion": "{choice}"},
        "a choice in the prompt": {**_CHOICE, "template": "{choice}"},
        "the label as a field": {**_COMPLETION, "template": "{label}"},
        "the choices as a field": {**_COMPLETION, "template": "{choices}"},
        "a brace that is open": {**_COMPLETION, "template": "{text"},
        "a brace that is closed alone": {**_COMPLETION, "template": "text}"},
        "a name of signs beyond ASCII": {**_COMPLETION, "template": "{\u30fb\U0001e4f0}"},
        "a name with a hyphen": {**_COMPLETION, "template": "{a-b}"},
        "a name with a digit first": {**_COMPLETION, "template": "{1a}"},
        "no name": {**_COMPLETION, "template": "{}"},
        "a form of a field": {**_COMPLETION, "template": "{text:>9}"},
        "label words that are equal": {**_WORDS, "label_words": ["0", "0"]},
    }.items():
        yield _case(f"template: {name}", task, [row])


# --- lines


def _lines() -> Iterator[Case]:
    good = b'{"text": "a", "label": 0}'
    for name, data in {
        "the three ends of a line": good + b"\n" + good + b"\r\n" + good + b"\r" + good,
        "lines of white space": b"\n \t\v\f\r\n" + good + b"\n\n",
        "a line of other white space": good + b"\n\xc2\x85\n",
        "a separator of files": good + b"\n\x1c\n",
        "a mark of the order of bytes on a line": good + b"\n\xef\xbb\xbf\n",
        "not UTF-8": good + b"\n" + b'{"text": "\xff", "label": 0}',
        "not JSON": good + b"\n{",
        "two values in a line": good + good,
        "a list": b'["a", 0]',
        "a field is missing": b'{"label": 0}',
        "a field is a number": b'{"text": 5, "label": 0}',
        "half of a surrogate pair": b'{"text": "\\ud800", "label": 0}',
        "half of one in a field that is skipped": b'{"text": "a", "other": "\\ud800", "label": 0}',
        "no number, in a field that is skipped": b'{"text": "a", "other": NaN, "label": 0}',
        **{
            f"{name}, in a field that is skipped": b'{"text": "a", "other": %s, "label": 0}' % value
            for name, value in {
                "lists in 64 levels": b"[" * 63 + b"]" * 63,
                "lists in 65 levels": b"[" * 64 + b"]" * 64,
                "a number of 308 digits": b"9" * 308,
                "a number of 309 digits": b"9" * 309,
                "1e999": b"1e999",
                "1e999, and then again": b'1e999, "other": 1',
            }.items()
        },
        "a whole pair": b'{"text": "\\ud83d\\ude00", "label": 0}',
        "a repeated key: the last counts": b'{"text": "a", "text": "b", "label": 1, "label": 0}',
        "no line": b"",
    }.items():
        yield _case(f"lines: {name}", _WORDS, data)


def _rows() -> Iterator[Case]:
    for name, label in {"below": -1, "beyond": 2, "true": True, "text": "1", "1.0": 1.0, "null": None}.items():
        yield _case(f"label: {name}", _WORDS, [{"text": "a", "label": label}])
    yield _case("label: none", _WORDS, [{"text": "a"}])
    yield _case("label: not looked at in a completion", _COMPLETION, [{"text": "a", "answer": "b", "label": "x"}])
    for name, choices in {
        "one": ["a"],
        "three": ["a", "bc", "d"],
        "equal ones": ["a", "a"],
        "no list": "ab",
        "a number": ["a", 1],
        "half of a surrogate pair": ["a", "\ud800"],
    }.items():
        row = json.dumps({"text": "t", "choices": choices, "label": 0}).encode("ascii")
        yield _case(f"choices: {name}", _CHOICE, row)
    for name, answer in {
        "a whole number": -5,
        "2^53": 1 << 53,
        "2^53 + 2": (1 << 53) + 2,
        "a fraction": 0.5,
        "null": None,
        "half of a surrogate pair": "\ud800",
    }.items():
        row = json.dumps({"text": "t", "answer": answer}).encode("ascii")
        yield _case(f"a field of the rule: {name}", _REWARD, row)
    yield _case("a field of the rule: none", _REWARD, [{"text": "t"}])


# --- what does not fit


def _cut() -> Iterator[Case]:
    for name, special in {"": _NO_START, ", with a token at the start": _START}.items():
        long = {"text": "abcdefgh", "answer": "ijklmnop", "choices": ["x", "yz"], "label": 1}
        for kind, task, limits in (
            ("words", _WORDS, (5,)),
            ("long words", _LONG, (5, 6, 15)),
            ("words with a common token", _SET_APART, (5, 6, 15)),
            ("choice", _CHOICE, (5, 6, 7)),
            ("completion", _COMPLETION, (5, 6, 7, 9, 15)),
        ):
            for max_tokens in limits:
                yield _case(f"{max_tokens} tokens: {kind}{name}", task, [long], max_tokens, special)
        for length in (1, 4, 5, 9):
            text = "abcdefghi"[:length]
            yield _case(f"a text of {length} in pieces of 4{name}", _TEXT, [{"text": text}], 4, special)
        yield _case(f"an empty text{name}", _TEXT, [{"text": ""}], 4, special)
        yield _case(f"two texts in pieces{name}", _TEXT, [{"text": "abcde"}, {"text": "fgh"}], 4, special)
        for max_tokens in (4, 5, 7):
            row = {"text": "abcdef", "answer": "x"}
            yield _case(f"{max_tokens} tokens, an answer of 3: reward{name}", _REWARD, [row], max_tokens, special)
        empty = {**_CHOICE, "template": "{text}", "completion": "{choice}"}
        for text, choices in (("", ["ab", "c"]), ("", ["ab", "cd"]), ("t", ["", "a"])):
            chosen = [{"text": text, "choices": choices, "label": 0}]
            yield _case(f"prompt {text!r} and choices {choices}{name}", empty, [*chosen], 8, special)
        bare = {**_WORDS, "template": "{text}"}
        yield _case(f"an empty prompt before a label word{name}", bare, [{"text": "", "label": 0}], 8, special)
        common = {**_SET_APART, "template": "{text}"}
        yield _case(f"an empty prompt before a common token{name}", common, [{"text": "", "label": 0}], 8, special)
        question = {**_REWARD, "template": "{text}"}
        yield _case(f"an empty prompt before an answer{name}", question, [{"text": "", "answer": ""}], 8, special)
        short = {**_COMPLETION, "template": "{text}"}
        row = {"text": "", "answer": "x"}
        yield _case(f"an empty prompt and a completion of one token{name}", short, [row], 8, special)
    yield _case(
        "letters beyond ASCII are cut between their bytes", _WORDS, [{"text": "\u00e4\u00f6\u00fc", "label": 0}], 5
    )


def _told() -> Iterator[Case]:
    """Rewards whose rows name the right answer (SPEC 1.6)."""
    for answer, values in {
        "{answer}": ("", "x", "xyz", "wxyz", "\u00e4\u00f6", -7, None),
        "{{{answer}}}{answer}": ("x",),
        "": ("x",),
    }.items():
        rule = json.dumps({"check": {"words": [1, 1]}, "samples": 2, "tokens": 4, "answer": answer})
        for value, end in product(values, (257,) if values[1:] else (257, None)):
            name = f"a right answer {answer!r} of {value!r}{'' if end is None else ', with an end'}"
            row = {"text": "ab", "answer": value}
            yield _case(name, {**_REWARD, "completion": rule}, [row], end=end)


def _long() -> Iterator[Case]:
    """Rows of 2^20 code points, which is the most, and of one more: templates name a field hundreds of times."""
    rule = json.dumps({"check": {"exact": "{b}" * 448}, "samples": 2, "tokens": 3})
    for kind, task in {
        "words": {**_WORDS, "template": "{a}" * 1_023 + "{b}"},
        "choice": {**_CHOICE, "template": "{a}" * 1_023 + "." * 1_008, "completion": "{choice}."},
        "completion": {**_COMPLETION, "template": "{a}" * 512, "completion": "{a}" * 511 + "{b}"},
        "reward": {**_REWARD, "template": "{a}" * 576, "completion": rule},
    }.items():
        for name, more in {"as long as it may be": 0, "too long": 1}.items():
            row = {"a": _WIDE * 1_024, "b": _WIDE * (1_024 + more), "choices": ["x"] * (8 + more), "label": 0}
            yield _case(f"a row that is {name}: {kind}", task, [row], 8)


# --- a real tokenizer

REAL: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "label words": (
        {**_WORDS, "template": "{text} It was", "label_words": [" good", " bad"], "max_tokens": 16},
        [{"text": "The dog ran to the big park.", "label": 0}, {"text": "Lily was sad.", "label": 1}],
    ),
    "label words of one token": (
        {**_WORDS, "template": "{text} He was", "label_words": ["a", "s"], "max_tokens": 12},
        [{"text": "Tom had a car.", "label": 1}],
    ),
    "label words after a line break": (
        {**_WORDS, "template": "{text}\n", "label_words": ["Yes", "No"], "max_tokens": 12},
        [{"text": "Is it red?", "label": 0}],
    ),
    "a choice": (
        {**_CHOICE, "template": "{text} She", "completion": " {choice}", "max_tokens": 24},
        [{"text": "Once upon a time there was a girl.", "choices": ["was happy.", "said no"], "label": 0}],
    ),
    "a choice without a prompt": (
        {**_CHOICE, "template": "", "completion": "{choice}", "max_tokens": 12},
        [{"choices": ["One day", " One day"], "label": 1}],
    ),
    "a completion": (
        {**_COMPLETION, "template": "{text}\n\n", "completion": "{answer}", "max_tokens": 10},
        [{"text": "Who is there?", "answer": "It is a big bear."}, {"text": "Why?", "answer": " I \u00e4t it"}],
    ),
    "a right answer": (
        {**_REWARD, "template": "{text}\n\n", "completion": _RULE[:-1] + ', "answer": "{answer}"}', "max_tokens": 12},
        [{"text": "Who is there?", "answer": "It is a big bear."}],
    ),
    "a text": (
        {**_TEXT, "max_tokens": 8},
        [{"text": "One day, a boy found a ball. He was very happy."}, {"text": ""}],
    ),
}


def _real() -> Iterator[Case]:
    for name, (task, rows) in REAL.items():
        for number, row in enumerate(rows):
            data = json.dumps(row, ensure_ascii=False).encode("utf-8")
            written = {"special": A_WITH_SPECIAL, "tokens": "table"}
            tokenizer = cast("PreTrainedTokenizerBase", TableTokenizer())
            yield _made(f"stories260K: {name}, row {number}", task, data, tokenizer, written)
