"""The rule of rewards (SPEC 1.6): what `parse_reward` takes, what it refuses, and that nothing else escapes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies

from protocol.errors import Reject
from protocol.run.manifest import checked
from protocol.run.reward import RangeCheck, RowText, TextCheck, TextMatch, parse_reward
from protocol.schema import Malformed
from tests.support.manifests import manifest_data

JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats() | strategies.text(),
    lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
)


def rule_text(check: object, **changes: object) -> str:
    return json.dumps({"check": check, "samples": 8, "tokens": 16} | changes)


def deep(levels: int) -> object:
    """A check in so many levels."""
    check: object = {"exact": "a"}
    for _ in range(levels - 1):
        check = {"sum": [[1, check]]}
    return check


def test_parse_reward__a_text_with_fields_and_doubled_braces__reads_both() -> None:
    rule = parse_reward(rule_text({"regex": "{a}x{{2,3}}{b_1}"}))
    assert rule.check == TextCheck(TextMatch.REGEX, RowText(("", "x{2,3}", ""), ("a", "b_1")))
    assert (rule.samples, rule.tokens) == (8, 16)
    assert set(rule.fields) == {"a", "b_1"}


def test_parse_reward__fields_in_every_kind_of_check__lists_all() -> None:
    schema = {"properties": {"x": {"enum": ["{c}", 1, None]}, "y": {"items": {"const": "{d}"}}}}
    terms = [[1, {"exact": "{a}"}], [2.5, {"number": [0, "{b}"]}], [1, {"json": schema}]]
    assert parse_reward(rule_text({"sum": terms})).fields == ("a", "b", "c", "d")


def test_parse_reward__a_number_without_field__is_a_range_of_one() -> None:
    check = parse_reward(rule_text({"number": "-4.5"})).check
    assert isinstance(check, RangeCheck)
    assert (check.low, check.high) == (-4.5, -4.5)


@pytest.mark.parametrize("levels", [1, 8])
def test_parse_reward__at_the_depth_allowed__is_read(levels: int) -> None:
    assert parse_reward(rule_text(deep(levels))).fields == ()


@pytest.mark.parametrize(
    ("check", "place"),
    [
        ([], "reward.check: an object is expected"),
        ({}, "reward.check: 0 checks where one is expected"),
        ({"exact": "a", "words": [1, 2]}, "reward.check: 2 checks where one is expected"),
        ({"python": "a"}, "reward.check: 'python' is unknown; known are exact, contains, regex, number, words"),
        ({"exact": 1}, "reward.check.exact: a text is expected"),
        ({"exact": "{answer"}, "reward.check.exact: a single brace at character 1"),
        ({"exact": "a}"}, "reward.check.exact: a single brace at character 2"),
        ({"regex": "a{2,3}"}, "reward.check.regex: {2,3} is not a field of the data; a field is {name}, and a brace"),
        ({"exact": "{label}"}, "reward.check.exact: {label} is not a field of the data"),
        ({"exact": "{a!r}"}, "reward.check.exact: {a!r} is not a field of the data"),
        ({"exact": "{}"}, "reward.check.exact: {} is not a field of the data"),
        ({"number": "many"}, "reward.check.number: 'many' is neither a decimal number nor a text with a field"),
        ({"number": [1]}, "reward.check.number: a list of 2 is expected"),
        ({"number": [2, 1]}, "reward.check.number: nothing lies in 2 ... 1"),
        ({"number": [True, 1]}, "reward.check.number[0]: a number is expected"),
        ({"words": [0, 2.5]}, "reward.check.words[1]: a whole number of 0 ... 16,384 is expected"),
        ({"words": [3, 2]}, "reward.check.words: nothing lies in 3 ... 2"),
        ({"characters": [0, 16_385]}, "reward.check.characters[1]: a whole number of 0 ... 16,384 is expected"),
        ({"sum": []}, "reward.check.sum: a list of 1 to 16 is expected"),
        ({"sum": [[1]]}, "reward.check.sum[0]: a list of 2 is expected"),
        ({"sum": [[0, {"exact": "a"}]]}, "reward.check.sum[0][0]: a weight is above 0"),
        ({"sum": [[True, {"exact": "a"}]]}, "reward.check.sum[0][0]: a number is expected"),
        ({"sum": [[1, {"exact": "a"}], [1, {}]]}, "reward.check.sum[1][1]: 0 checks"),
        ({"sum": [[1, {"sum": [[1, {"exact": "a"}]] * 8}]] * 2}, "reward.check.sum[1][1].sum[6]: the rule's sums have"),
        (deep(9), "checks and schemas nest deeper than 8"),
        ({"json": {"pattern": "a"}}, "reward.check.json: 'pattern' is unknown; known are type, properties"),
        ({"json": {"type": ["null"]}}, "reward.check.json.type: one of object, array"),
        ({"json": {"properties": {"a": 1}}}, "reward.check.json.properties['a']: an object is expected"),
        ({"json": {"required": [1]}}, "reward.check.json.required: a list of texts is expected"),
        ({"json": {"additionalProperties": 0}}, "reward.check.json.additionalProperties: true or false"),
        ({"json": {"items": []}}, "reward.check.json.items: an object is expected"),
        ({"json": {"enum": []}}, "reward.check.json.enum: a list of 1 to 64 is expected"),
        ({"json": {"enum": [[]]}}, "reward.check.json.enum[0]: a text, a number, true, false or null is expected"),
        ({"json": {"const": 1, "enum": [1]}}, "reward.check.json: const and enum exclude each other"),
        ({"json": {"minimum": "1"}}, "reward.check.json.minimum: a number is expected"),
        ({"json": {"minLength": -1}}, "reward.check.json.minLength: a whole number of 0 ... 16,384"),
        ({"json": {"minItems": 2, "maxItems": 1}}, "reward.check.json: minItems is above maxItems"),
        ({"exact": "\ud800"}, "reward: half of a surrogate pair is not a character"),
        ({"exact": "a" * 4_096}, "characters are more than 4,096"),
    ],
)
def test_parse_reward__one_fault_in_a_check__is_refused_with_its_place(check: object, place: str) -> None:
    with pytest.raises(Malformed) as refusal:
        parse_reward(rule_text(check))
    assert place in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "reward: not JSON"),
        ("[" * 65, "reward: lists and objects nest deeper than 64"),
        ('{"check": {"exact": "a"}, "samples": 8}', "reward: 'tokens' is missing"),
        (rule_text({"exact": "a"}, more=1), "reward: 'more' is unknown; known are check, samples, tokens"),
        (rule_text({"exact": "a"}, samples=1), "reward.samples: a whole number of 2 ... 64 is expected"),
        (rule_text({"exact": "a"}, samples=65), "reward.samples: a whole number of 2 ... 64 is expected"),
        (rule_text({"exact": "a"}, samples=True), "reward.samples: a whole number of 2 ... 64 is expected"),
        (rule_text({"exact": "a"}, samples=8.0), "reward.samples: a whole number of 2 ... 64 is expected"),
        (rule_text({"exact": "a"}, tokens=0), "reward.tokens: a whole number of 1 ... 1,024 is expected"),
        (rule_text({"exact": "a"}, tokens=1_025), "reward.tokens: a whole number of 1 ... 1,024 is expected"),
        (rule_text({"number": [0, float("nan")]}), "reward: not JSON: NaN is not a number of JSON"),
        (rule_text({"number": [0, 1]}).replace("1]", "1e999]"), "reward: not JSON: 1e999 is not a number"),
        ('{"check": {"exact": "a", "exact": "a"}, "samples": 8, "tokens": 8}', "reward: not JSON: an object has a key"),
    ],
)
def test_parse_reward__one_fault_in_the_document__is_refused_with_its_place(text: str, place: str) -> None:
    with pytest.raises(Malformed) as refusal:
        parse_reward(text)
    assert place in str(refusal.value)


@given(strategies.text() | JSON.map(json.dumps) | JSON.map(rule_text))
def test_parse_reward__anything__is_a_rule_or_malformed(text: str) -> None:
    try:
        rule = parse_reward(text)
    except Malformed:
        return
    assert parse_reward(text) == rule


def reward_manifest(core: str = "dense", **task: Any) -> dict[str, Any]:
    data = manifest_data(core=core)
    rule = rule_text({"exact": "{answer}"})
    data["task"] |= {"kind": "reward", "label_words": [], "completion": rule, "objective": "loss"} | task
    return data


def test_manifest__of_a_reward__is_valid() -> None:
    assert checked(reward_manifest()).task.kind == "reward"


@pytest.mark.parametrize(
    ("task", "fault"),
    [
        ({"completion": "{answer}"}, "task.completion: reward: not JSON"),
        ({"completion": ""}, "task.completion: empty exactly for a classification"),
        ({"label_words": [" no", " yes"]}, "task.label_words: two or more for a classification, else none"),
        ({"objective": "accuracy"}, "task.objective: must be loss with dense cores"),
        ({"core": "canonical"}, "rewards are learnt by a dense core, and this run draws directions"),
        ({"completion": rule_text({"words": [1, 2]}, samples=64)}, "16 answers, fewer than the 64 samples to a prompt"),
    ],
)
def test_manifest__of_a_reward_with_one_fault__is_rejected(task: dict[str, Any], fault: str) -> None:
    with pytest.raises(Reject) as refusal:
        checked(reward_manifest(**task))
    assert refusal.value.reason.name == "MANIFEST_FIELD"
    assert fault in refusal.value.detail
