"""Vectors of rewards (SPEC 1.6): what answers get by each kind of check, at its bounds; and rules that are none."""

from __future__ import annotations

import json
from collections.abc import Iterator

from protocol.run.reward import parse_reward
from sfnode.rewards import Checker
from tests.vectors.notation import Case, Document, case, compact, document

ROW = {"answer": "42", "n": 7, "odd": "a.b{c}", "blank": " 42\n", "nothing": ""}
_OBJECT = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}, "b": {"enum": ["{answer}", None, True, 1.5]}},
    "required": ["a"],
    "additionalProperties": False,
}
_LIST = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 2}, "minItems": 1, "maxItems": 2}
_SUM = [[1, {"exact": "{answer}"}], [2, {"words": [1, 1]}], [1, {"sum": [[0.5, {"contains": "4"}]]}]]
_OPEN = {"properties": {"a": {"const": False}}, "required": ["b"]}
_DEEP = "[" * 64 + "]" * 64

# name, check, answers
CHECKS: tuple[tuple[str, object, tuple[str, ...]], ...] = (
    ("exact, with a field", {"exact": "{answer}"}, ("42", " 42\r\n", "\x0b\x0c42", "\u00a042", "42.", "4 2", "")),
    ("exact, a field with blanks", {"exact": "{blank}"}, ("42", "4")),
    ("exact, braces", {"exact": "{{{n}}}"}, ("{7}", "7", "{n}")),
    ("contains", {"contains": "{answer}"}, ("it is 42.", "4 2")),
    ("contains nothing", {"contains": "{nothing}"}, ("", "a")),
    ("contains, with a blank", {"contains": " a"}, ("b a", " a")),
    ("regex", {"regex": "[a-c]{{2,3}}"}, ("ab", " abc ", "a", "abcd", "xab", "abx")),
    ("regex, quoted fields", {"regex": "{odd}|{n}x"}, ("a.b{c}", "aXb{c}", "7x", "7")),
    ("regex, one of two", {"regex": "a|b"}, ("b", "ax", "xb")),
    ("regex, a point", {"regex": "a.b"}, ("a b", "a\nb")),
    ("number", {"number": "{answer}"}, ("42", "42.0", "+042", "-42", "42,0", "4.2e1", "42.", "", "1" * 400,
        "\u0664\u0662")),
    ("number, a field with blanks", {"number": "{blank}"}, ("42",)),
    ("number, a field that is none", {"number": "{odd}"}, ("42",)),
    ("number, a range", {"number": [-1.5, "{n}"]}, ("-1.5", "7", "-1.51", "7.01")),
    ("number, a range of texts", {"number": ["-2", 1e2]}, ("-2", "100", "100.5")),
    ("words", {"words": [1, 2]}, ("a", "a \n b", "a\u00a0b c", "", "a b c")),
    ("characters", {"characters": [1, 2]}, ("a", " ab ", "\u00e4\U0001f600", "", "abc")),
    ("json, an object", {"json": _OBJECT}, (
        '{"a": 3}', '{"a":3.0,"b":"42"}', '{"a":3e0,"b":null}', '{"a":0,"b":true}', '{"a":9,"b":1.5}', '{"a":0,"b":1}',
        '{"a":3.5}', '{"b":null}', '{"a":true}', '{"a":10}', '{"a":-1}', '{"a":1,"c":1}', '{"a":1,"a":1}', "[]",
        "{'a':1}",
    )),
    ("json, a list", {"json": _LIST}, (
        '["a"]', '["a","\U0001f600c"]', "[]", '["a","b","c"]', '[""]', '["abc"]', "[1]", '"a"')),
    ("json, anything", {"json": {}}, (
        "1", '"\\ud800"', "1e5", '{"\\udfff":1}', _DEEP, f"[{_DEEP}]", "", "NaN", "1e999", "1" * 400, "1 2")),
    ("json, an open object", {"json": _OPEN}, ('{"a":false,"b":[],"c":1}', '{"a":0,"b":1}', '{"a":false}', "1")),
    ("json, nothing is required", {"json": {"properties": {"a": {}}}}, ("{}",)),
    ("json, closed", {"json": {"required": ["a"], "additionalProperties": False}}, ('{"a":1}', "{}")),
    ("json, a field with blanks", {"json": {"const": "{blank}"}}, ('" 42\\n"', '"42"')),
    ("json, true is not 1", {"json": {"const": 1}}, ("1", "1.0", "true", '"1"')),
    ("json, a field", {"json": {"const": "{answer}"}}, ('"42"', "42")),
    ("json, bounds of other types", {"json": {"minimum": 3, "minLength": 2, "minItems": 1}}, (
        "3", "2", '"ab"', '"a"', "[]", "{}")),
    *((f"json, {kind}", {"json": {"type": kind}}, ("null", "true", "0", "0.5", '""', "[]", "{}"))
      for kind in ("null", "boolean", "number", "integer", "string", "array", "object")),
    ("sum", {"sum": _SUM}, ("42", "41", "4 1", "x", "x y")),
)  # fmt: skip
_LONG = "a" * 16_382 + "\u00e9"


def rule_of(check: object) -> str:
    return json.dumps({"check": check, "samples": 8, "tokens": 16}, ensure_ascii=False)


def checks() -> Document:
    """checks.json"""
    return document("What answers get by the rule of a run that learns from rewards: SPEC 1.6", _cases())


def _cases() -> Iterator[Case]:
    for name, check, answers in CHECKS:
        for number, answer in enumerate(answers, start=1):
            yield _case(f"{name}: {number}", check, answer)
    for name in ("exact", "contains", "regex", "number"):
        yield _case(f"{name}: an answer that did not end", {name: "{answer}"}, "42", has_ended=False)
    yield _case("sum: an answer that did not end", {"sum": _SUM}, "42", has_ended=False)
    yield _case("the longest answer", {"regex": "a*\u00e9"}, _LONG)
    yield _case("a longer answer has not ended", {"regex": "a*\u00e9b?"}, f"{_LONG}b")
    yield _case("the beginning of a longer answer", {"contains": "\u00e9"}, f"{_LONG}b")
    yield _case("the end of a longer answer", {"contains": "b"}, f"{_LONG}b")
    yield _case("white space counts as bytes of the answer", {"words": [1, 1]}, f" {_LONG}")
    yield _case("the answer is cut, then stripped", {"contains": "b"}, f" {_LONG[1:]}b")
    yield _case("a character that is cut", {"contains": "\u00e9"}, f"a{_LONG}")


def _case(name: str, check: object, answer: str, *, has_ended: bool = True) -> Case:
    rule = rule_of(check)
    found = Checker(parse_reward(rule)).reward(answer, has_ended, ROW)
    given = {"rule": rule, "row": ROW, "answer": compact(answer.encode(), b"a"), "has_ended": has_ended}
    return case(name, "reward", given, {"reward": f"{found:.9f}"})
