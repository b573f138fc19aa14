"""A rule in words, as ``sfnode init`` prints it."""

from __future__ import annotations

import json

import pytest

from protocol.run.reward import parse_reward
from sfnode.run.purpose import rule_in_words

ANSWERS = "; 8 answers of at most 16 tokens to each prompt"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a", "b"]}


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ({"exact": "{answer}"}, "1 if the answer is '{answer}', else 0"),
        ({"contains": "it's {{}}"}, '1 if the answer contains "it\'s {}", else 0'),
        ({"regex": "a{{2}}"}, "1 if the answer matches the pattern 'a{2}', else 0"),
        ({"regex": r"[A-Z].*\."}, r"1 if the answer matches the pattern '[A-Z].*\.', else 0"),  # as it was written
        ({"number": "{answer}"}, "1 if the answer is the number '{answer}', else 0"),
        ({"number": [0, "{n}"]}, "1 if the answer is a number of 0 to '{n}', else 0"),
        ({"words": [1, 8]}, "1 if the answer has 1 to 8 words, else 0"),
        ({"characters": [1, 1]}, "1 if the answer has 1 character, else 0"),
        ({"json": SCHEMA}, "1 if the answer is JSON: object with a (integer), b, else 0"),
        ({"json": {"type": "array", "items": {"enum": [1]}}}, "1 if the answer is JSON: array of a constant, else 0"),
        ({"json": {"properties": {"a" * 99: {}}}}, "1 if the answer is JSON: anything with aaaaaa"),
        (
            {"sum": [[3, {"exact": "{a}"}], [1, {"words": [1, 1]}]]},
            "the answer gets 0.75 if it is '{a}' + 0.25 if it has 1 word",
        ),
    ],
)
def test_rule_in_words__each_check__says_what_it_rewards(check: object, words: str) -> None:
    said = rule_in_words(parse_reward(json.dumps({"check": check, "samples": 8, "tokens": 16})))
    assert said.startswith(words)
    assert said.endswith(ANSWERS)
