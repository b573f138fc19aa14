"""What docs/rewards.md says that answers get is what they get, and its rules are rules."""

from __future__ import annotations

import json
import re

import pytest

from protocol.run.reward import parse_reward
from sfnode.rewards import Checker
from sfnode.run.reward_options import RewardOptions
from tests import REPOSITORY

DOCUMENT = (REPOSITORY / "docs" / "rewards.md").read_text("utf-8")
EXAMPLES = re.findall(r"^\| `(.+)` \| `(.+)` \| ([0-9.]+) \|$", DOCUMENT, re.MULTILINE)
RULES = [
    rule
    for cell in re.findall(r"^\| (`[^|]+) \| [^|]+ \|$", DOCUMENT, re.MULTILINE)
    for rule in re.findall("`([^`]+)`", cell)
    if rule not in ("--reward", "@rule.json")
]
ROW = json.loads(re.findall(r"with the row `(.+)`", DOCUMENT)[0])


def test_document__examples_and_rules__are_found() -> None:
    assert len(EXAMPLES) >= 12
    assert len(RULES) >= 9


@pytest.mark.parametrize(("check", "answer", "reward"), EXAMPLES)
def test_document__each_example__gets_what_it_says(check: str, answer: str, reward: str) -> None:
    checker = Checker(parse_reward(json.dumps({"check": json.loads(check), "samples": 8, "tokens": 16})))
    assert checker.reward(answer, True, ROW) == float(reward)


@pytest.mark.parametrize("rule", RULES)
def test_document__each_rule__is_taken(rule: str) -> None:
    assert parse_reward(RewardOptions(rule_text=rule).document).samples == 4
