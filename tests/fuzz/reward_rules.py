"""Target ``reward``: any text is a rule of rewards within the bounds of SPEC 1.6, or Malformed; answers get 0 to 1."""

from __future__ import annotations

import json
from collections.abc import Iterator

from protocol.errors import OperatorError
from protocol.run.reward import Check, JsonSchema, SumCheck, parse_reward
from protocol.schema import Malformed
from sfnode.rewards import Checker
from tests.fuzz.catalogue import Target
from tests.fuzz.verdicts import check_text
from tests.vectors.check_cases import CHECKS

_ANSWERS = ("", "42", '{"a": [1, null, "42"]}', "a b\n c")


def check_rule(data: bytes) -> None:
    """The first line is the rule, the rest an answer."""
    text, _, answer = data.decode("utf-8", "surrogateescape").partition("\n")
    try:
        rule = parse_reward(text)
    except Malformed as error:
        check_text(error)
        return
    assert parse_reward(text) == rule
    assert 2 <= rule.samples <= 64 and 1 <= rule.tokens <= 1_024
    assert _depth(rule.check) <= 8 and _terms(rule.check) <= 16
    try:
        checker = Checker(rule)
    except OperatorError as error:
        check_text(error)
        return
    row = dict.fromkeys(rule.fields, "42")
    for each in (*_ANSWERS, answer):
        assert 0.0 <= checker.reward(each, True, row) <= 1.0


def _depth(check: Check) -> int:
    inner: list[Check] = []
    if isinstance(check, SumCheck):
        inner = [term for _, term in check.terms]
    elif isinstance(check, JsonSchema):
        inner = [*check.properties.values(), *([] if check.items is None else [check.items])]
    return 1 + max(map(_depth, inner), default=0)


def _terms(check: Check) -> int:
    return sum(1 + _terms(term) for _, term in check.terms) if isinstance(check, SumCheck) else 0


def rule_seeds() -> Iterator[bytes]:
    """A rule of each kind of check with an answer, and each kind of fault."""
    for _, check, answers in CHECKS:
        rule = json.dumps({"check": check, "samples": 8, "tokens": 16})
        yield f"{rule}\n{answers[0][:64]}".encode()
    for check in ({}, {"exact": "{a"}, {"sum": [[0, {}]]}, {"json": {"$ref": "#"}}, {"regex": "("}, {"number": "x"}):
        yield json.dumps({"check": check, "samples": 8, "tokens": 16}).encode()
    yield b'{"check": {"exact": "\\ud800"}, "samples": 2, "tokens": 1}'
    yield b"[" * 100


TARGETS = {"reward": Target(check=check_rule, seeds=rule_seeds)}
