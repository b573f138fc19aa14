"""Vectors of the rule of rewards as a manifest holds it (SPEC 1.6): its bounds, and one fault at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from tests.vectors.manifest_dense import DENSE
from tests.vectors.notation import Case

Data: TypeAlias = dict[str, Any]
_A: Data = {"exact": "a"}


def _text(check: object, **more: object) -> str:
    return json.dumps({"check": check, "samples": 8, "tokens": 16} | more, ensure_ascii=False, separators=(",", ":"))


REWARD: Data = {
    **DENSE,
    "method.directions": 64,
    "task.batch_rows": 64,
    "task.kind": "reward",
    "task.label_words": [],
    "task.completion": _text({"exact": "{answer}"}),
}


def _sums(levels: int) -> object:
    return _A if levels == 1 else {"sum": [[1, _sums(levels - 1)]]}


def _schemas(levels: int) -> Data:
    return {} if levels == 1 else {"items" if levels % 2 else "properties": _inner(levels)}


def _inner(levels: int) -> Data:
    return _schemas(levels - 1) if levels % 2 else {"a": _schemas(levels - 1)}


def _mixed(sums: int, schemas: int) -> object:
    return {"sum": [[1, _mixed(sums - 1, schemas)]]} if sums else {"json": _schemas(schemas)}


def _terms(count: int) -> object:
    return {"sum": [[1, {"sum": [[1, _A]] * (count - 2)}], [0.5, _A]]}


_VALID: dict[str, str] = {
    "least": _text({"words": [0, 0]}, samples=2, tokens=1),
    "most": _text({"characters": [16_384, 16_384]}, samples=64, tokens=1_024),
    "in any order, with blanks": ' { "tokens" : 16, "samples":8,\n"check":{"exact" :"a"}} ',
    "fields and braces": _text({"regex": "{a}{{2,3}}{b_1}{{{\u00e4}}}"}),
    "names in signs, and in letters that are new in Unicode": _text({"exact": "{\U0001e4f0}{\u30fb}{_\u00a0}"}),
    "nothing": _text({"exact": ""}),
    "8 sums": _text(_sums(8)),
    "8 schemas": _text({"json": _schemas(8)}),
    "4 sums with 4 schemas in them": _text(_mixed(4, 4)),
    "ranges of one value": _text({"sum": [[1, {"number": ["5", 5]}], [1, {"words": [5, 5]}]]}),
    "B is no multiple of the samples": _text(_A, samples=7),
    "16 terms": _text(_terms(16)),
    "the largest weight": _text({"sum": [[1_000_000, _A], [1e-300, _A]]}),
    "64 constants": _text({"json": {"enum": [None, True, 1.5, "{a}"] * 16}}),
    "bounds as texts": _text({"number": ["-1.5", "{n}"]}),
    "a bound against the order of texts": _text({"number": ["{n}", 1]}),
    "a bound": _text({"number": "+042"}),
    "a right answer": _text(_A, answer="{a}: {{b}}"),
    "the longest": _text({"exact": "x" * (4_096 - len(_text({"exact": ""})))}),
    "every keyword": _text({"json": {
        "type": "object", "properties": {"": {}}, "required": [], "additionalProperties": False, "items": {},
        "const": None, "minimum": -1e308,
        "maximum": 1e308, "minLength": 0, "maxLength": 0, "minItems": 0, "maxItems": 16_384,
    }}),
}  # fmt: skip
_WRONG: dict[str, str] = {
    "no JSON": "{",
    "a list": "[]",
    "blanks": " ",
    "without samples": '{"check":{"exact":"a"},"tokens":16}',
    "with another member": _text(_A, seed=1),
    "answer: null": _text(_A, answer=None),
    "answer: a brace": _text(_A, answer="{a"),
    "answer in place of tokens": '{"check":{"exact":"a"},"samples":8,"answer":"a"}',
    "samples: 1": _text(_A, samples=1),
    "samples: 65": _text(_A, samples=65),
    "samples: true": _text(_A, samples=True),
    "samples: a fraction": _text(_A, samples=8.0),
    "tokens: 0": _text(_A, tokens=0),
    "tokens: 1,025": _text(_A, tokens=1_025),
    "a key twice": '{"check":{"exact":"a"},"samples":8,"samples":8,"tokens":16}',
    "a key twice in a schema": '{"check":{"json":{"type":"null","type":"null"}},"samples":8,"tokens":16}',
    "NaN": _text({"number": [0, float("nan")]}),
    "beyond binary64": _text({"number": [0, 1]}).replace("1]", "1e999]"),
    "an integer beyond binary64": _text({"number": [0, 1]}).replace("1]", f"{'1' * 400}]"),
    "half of a surrogate pair": _text(_A).replace('"a"', '"\\ud800"'),
    "half of a surrogate pair in a key": _text({"json": {"properties": {"a": {}}}}).replace('"a"', '"\\ud800"'),
    "no check": _text({}),
    "two checks": _text({"exact": "a", "contains": "a"}),
    "an unknown check": _text({"python": "a"}),
    "a number as text": _text({"exact": 1}),
    "an open brace": _text({"exact": "{a"}),
    "a closing brace": _text({"exact": "a}"}),
    "a brace too many": _text({"exact": "{{{a}}"}),
    "a quantifier": _text({"regex": "a{2,3}"}),
    "a field without a name": _text({"exact": "{}"}),
    "a field that begins with a digit": _text({"exact": "{1a}"}),
    "a field with a form": _text({"exact": "{a:}"}),
    "the field label": _text({"exact": "{label}"}),
    "the field choices": _text({"exact": "{choices}"}),
    "the field choice": _text({"exact": "{choice}"}),
    "number: a word": _text({"number": "many"}),
    "number: a fixed number": _text({"number": 1}),
    "number: one bound": _text({"number": [1]}),
    "number: no order": _text({"number": [2, "1"]}),
    "number: true": _text({"number": [True, 1]}),
    "words: no order": _text({"words": [2, 1]}),
    "words: a fraction": _text({"words": [0, 2.5]}),
    "words: 16,385": _text({"words": [0, 16_385]}),
    "characters: below 0": _text({"characters": [-1, 1]}),
    "sum: no term": _text({"sum": []}),
    "sum: a term without a check": _text({"sum": [[1]]}),
    "sum: 17 terms": _text(_terms(17)),
    "sum: weight 0": _text({"sum": [[0, _A]]}),
    "sum: weight 1,000,001": _text({"sum": [[1_000_001, _A]]}),
    "sum: weight true": _text({"sum": [[True, _A]]}),
    "9 sums": _text(_sums(9)),
    "4 sums with 5 schemas in them": _text(_mixed(4, 5)),
    "number: blanks around a bound": _text({"number": " 5 "}),
    "number: a bound beyond binary64": _text({"number": "1" * 400}),
    "json: a brace in a constant": _text({"json": {"const": "{"}}),
    "9 schemas": _text({"json": _schemas(9)}),
    "json: a pattern": _text({"json": {"pattern": "a"}}),
    "json: two types": _text({"json": {"type": ["null", "string"]}}),
    "json: no type": _text({"json": {"type": None}}),
    "json: no properties": _text({"json": {"properties": None}}),
    "json: nothing required": _text({"json": {"required": None}}),
    "json: neither open nor closed": _text({"json": {"additionalProperties": None}}),
    "json: no items": _text({"json": {"items": None}}),
    "json: properties": _text({"json": {"properties": []}}),
    "json: required": _text({"json": {"required": [1]}}),
    "json: additionalProperties": _text({"json": {"additionalProperties": {}}}),
    "json: items": _text({"json": {"items": [{}]}}),
    "json: enum without constants": _text({"json": {"enum": []}}),
    "json: 65 constants": _text({"json": {"enum": [1] * 65}}),
    "json: a list as constant": _text({"json": {"const": []}}),
    "json: const and enum": _text({"json": {"const": 1, "enum": [1]}}),
    "json: minimum": _text({"json": {"minimum": "1"}}),
    "json: minLength": _text({"json": {"minLength": 0.5}}),
    "json: maxItems": _text({"json": {"maxItems": 16_385}}),
    "json: no order": _text({"json": {"minimum": 1, "maximum": 0}}),
    "json: no order of lengths": _text({"json": {"minLength": 1, "maxLength": 0}}),
    "65 levels": _text({"exact": "a"}).replace('"a"', "[" * 63 + "]" * 63),
}


def rules_of_rewards(field: Callable[..., Case]) -> Iterator[Case]:
    """Each rule as `field` puts it into a manifest."""
    for name, rule in _VALID.items():
        yield field(f"valid: a rule of rewards: {name}", {**REWARD, "task.completion": rule}, is_valid=True)
    for name, rule in _WRONG.items():
        yield field(f"rule 1.4.12: no rule of rewards: {name}", {**REWARD, "task.completion": rule}, is_valid=False)
