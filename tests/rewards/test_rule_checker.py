"""`Checker`: each check by examples; no answer makes it raise, leave 0 ... 1, or take long."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings, strategies

from protocol.errors import OperatorError
from protocol.run.reward import parse_reward
from sfnode.rewards import Checker

ROW = {"answer": "42", "n": 7, "odd": "a.b{c}", "blank": " 42\n", "nothing": ""}
LONG_S = 1.0  # for the longest answer; the slowest patterns that were found take 0.4 s


def checker_of(check: object) -> Checker:
    return Checker(parse_reward(json.dumps({"check": check, "samples": 8, "tokens": 16})))


def reward_of(check: object, answer: str, *, has_ended: bool = True) -> float:
    return checker_of(check).reward(answer, has_ended, ROW)


OBJECT = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}, "b": {"enum": ["{answer}", None, True, 1.5]}},
    "required": ["a"],
    "additionalProperties": False,
}
LIST = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 2}, "minItems": 1, "maxItems": 2}


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        ({"exact": "{answer}"}, ["42", " 42\n", "\t42\r\n"], ["42.", "", "4 2", "\u00a042"]),
        ({"exact": "{blank}"}, ["42"], [" 4"]),
        ({"exact": "{{{n}}}"}, ["{7}"], ["7", "{n}"]),
        ({"contains": "{answer}"}, ["42", "it is 42."], ["4 2", ""]),
        ({"contains": "{nothing}"}, [], ["", "a"]),
        ({"regex": "[a-c]{{2,3}}"}, ["ab", " abc "], ["a", "abcd", "xab"]),
        ({"regex": "{odd}|{n}x"}, ["a.b{c}", "7x"], ["aXb{c}", "7"]),
        ({"regex": "a.b"}, ["a b"], ["a\nb"]),
        ({"number": "{answer}"}, ["42", "42.0", "+042"], ["42,0", "4.2e1", "forty-two", "", "٤٢", "1" * 400]),
        ({"number": "{blank}"}, ["42"], ["43"]),
        ({"number": "{odd}"}, [], ["42", "a.b{c}"]),
        ({"number": [-1.5, "{n}"]}, ["-1.5", "7", "0"], ["-1.51", "7.01"]),
        ({"words": [1, 2]}, ["a", "a  b", "a\u00a0b c"], ["", "a b c"]),
        ({"characters": [1, 2]}, ["a", " ab ", "ää"], ["", "abc"]),
        ({"json": OBJECT}, ['{"a": 3}', '{"a":3.0,"b":"42"}', '{"a":0,"b":null}', '{"a":0,"b":true}'], []),
        ({"json": OBJECT}, ['{"a": 0, "b": 1.5}'], ['{"a": 3.5}', '{"b": null}', '{"a": 1, "b": 1}', '{"a": true}']),
        ({"json": OBJECT}, [], ['{"a": 10}', '{"a": -1}', '{"a": 1, "c": 1}', "[]", '{"a": 1, "a": 1}', "{'a': 1}"]),
        ({"json": LIST}, ['["a"]', '["a", "bc"]'], ["[]", '["a", "b", "c"]', '[""]', '["abc"]', "[1]", '"a"']),
        (
            {"json": {}},
            ["1", "null", '"\\ud800"', "1e5"],
            ["", "NaN", "1e999", "[" * 65 + "]" * 65, "1 2", "[" * 9_000],
        ),
        ({"json": {"const": False}}, ["false"], ["0", "null", '""']),
        ({"json": {"const": 0}}, ["0", "-0", "0.0"], ["false", "null"]),
        ({"json": {"minimum": 3}}, ["3", '"a"', "true"], ["2"]),
        ({"json": {"type": "null"}}, ["null"], ["0"]),
        ({"json": {"type": "boolean"}}, ["true"], ["1"]),
        ({"json": {"type": "number"}}, ["1", "1.5"], ["true", '"1"']),
        ({"json": {"required": ["a"]}}, ['{"a": []}', "1"], ["{}"]),
        ({"json": {"properties": {"a": {"properties": {"b": {"type": "null"}}}}}}, ['{"a": {}}'], ['{"a": {"b": 1}}']),
    ],
)
def test_reward__of_each_check__is_one_for_right_answers_only(
    check: object, right: list[str], wrong: list[str]
) -> None:
    assert [reward_of(check, answer) for answer in right] == [1.0] * len(right)
    assert [reward_of(check, answer) for answer in wrong] == [0.0] * len(wrong)


def test_reward__of_a_sum__is_the_weighted_mean() -> None:
    check = {"sum": [[1, {"exact": "{answer}"}], [2, {"words": [1, 1]}], [1, {"sum": [[5, {"contains": "4"}]]}]]}
    assert [reward_of(check, answer) for answer in ("42", "41", "4 1", "x", "x y")] == [1.0, 0.75, 0.25, 0.5, 0.0]


@pytest.mark.parametrize("name", ["exact", "regex", "number", "contains"])
def test_reward__of_an_answer_that_did_not_end__is_for_contains_only(name: str) -> None:
    assert reward_of({name: "{answer}"}, "42") == 1.0
    assert reward_of({name: "{answer}"}, "42", has_ended=False) == float(name == "contains")


def test_reward__of_more_than_16_kib__looks_at_no_more() -> None:
    whole = "a" * 16_382 + "é"
    assert reward_of({"regex": "a*é"}, whole) == 1.0
    assert reward_of({"regex": "a*é.*"}, whole + "b") == 0.0
    assert reward_of({"contains": "é"}, whole + "b") == 1.0
    assert reward_of({"contains": "b"}, whole + "b") == 0.0


@pytest.mark.parametrize("pattern", ["(", "(?=a)", "(a)\\1", "a{{1001}}", "((a{{100}}){{10}}){{10}}", "\\pL{{50}}"])
def test_rule_checker__a_pattern_that_is_not_re2s__teaches(pattern: str) -> None:
    with pytest.raises(OperatorError) as refusal:
        checker_of({"sum": [[1, {"regex": pattern}]]})
    assert str(refusal.value).startswith("the check's pattern '")
    assert str(refusal.value).endswith(
        "It is RE2 syntax, without look-around and backward references; write braces of "
        "the pattern twice, such as [0-9]{{2,3}}"
    )


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({}, "field 'answer' of the row is missing"),
        ({"answer": None}, "field 'answer' of the row is None, and neither a text nor a whole number"),
        ({"answer": True}, "field 'answer' of the row is True, and neither a text nor a whole number"),
        ({"answer": 1.5}, "field 'answer' of the row is 1.5, and neither a text nor a whole number"),
        ({"answer": 1 << 54}, "and neither a text nor a whole number"),
        ({"answer": "\ud800"}, "and neither a text nor a whole number"),
    ],
)
def test_reward__a_row_without_the_field__teaches(row: dict[str, object], fault: str) -> None:
    checker = checker_of({"exact": "{answer}"})
    with pytest.raises(OperatorError) as refusal:
        checker.reward("a", True, row)
    assert fault in str(refusal.value)


CHECKS = [
    {"exact": "{odd}"},
    {"contains": "{answer}"},
    {"regex": "({odd}|[^a]*)*"},
    {"number": [0, "{n}"]},
    {"words": [0, 3]},
    {"characters": [2, 5]},
    {"json": {"properties": {"": {"enum": ["{odd}", 1, None]}}, "items": {"items": OBJECT}}},
    {"json": LIST},
]
EVERYTHING = checker_of({"sum": [[1 + index / 3, check] for index, check in enumerate(CHECKS)]})
JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats() | strategies.text(),
    lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
)
ANY_TEXT = strategies.text(strategies.characters(codec=None))  # with halves of surrogate pairs


@settings(max_examples=40)
@given(ANY_TEXT | JSON.map(json.dumps), strategies.booleans())
def test_reward__of_any_answer__lies_within_zero_and_one(answer: str, has_ended: bool) -> None:
    found = EVERYTHING.reward(answer, has_ended, ROW)
    assert 0.0 <= found <= 1.0
    assert found == EVERYTHING.reward(answer, has_ended, ROW)


@pytest.mark.parametrize(
    "check",
    [
        {"regex": "(a+)+b"},
        {"regex": "(.*a.{{300}})*"},
        {"regex": "(a|aa|.{{0,200}}b.{{0,200}}c)*d"},
        {"json": {"items": {"enum": [f"{{n}}{index}" for index in range(64)]}}},
        {"json": {"items": {"required": [f"a{index}" for index in range(200)], "properties": {"a": {}}}}},
        EVERYTHING,
    ],
    ids=["nested", "far", "ambiguous", "enum", "required", "everything"],
)
def test_reward__of_the_longest_answers__takes_no_time(check: object) -> None:
    checker = check if isinstance(check, Checker) else checker_of(check)
    answers = ("a" * 16_384, "abc" * 5_461, "[" + "{}," * 5_000 + "{}]", "[" * 16_384, '"\\' * 8_192, "1" * 16_384)
    for answer in answers:
        start_s = time.process_time()
        assert 0.0 <= checker.reward(answer, True, ROW) <= 1.0
        assert time.process_time() - start_s < LONG_S
