"""Where rows tell a right answer: which text of a rule is one in all rows."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from protocol.errors import OperatorError
from sfnode.rewards.rule_checker import Checker
from sfnode.run.reward_options import RewardOptions

WORDS = [{"answer": "yes"}, {"answer": "no"}]
ONE_WORD = {"sum": [[1, {"words": [1, 2]}], [2, {"regex": "(?is).*\\b{answer}\\b.*"}], [7, {"regex": "(?i){answer}"}]]}
LINE = {"sum": [[1, {"json": {"required": ["a"]}}], [1, {"contains": "{name}"}], [2, {"exact": "{line}"}]]}


@pytest.mark.parametrize(
    ("rule", "rows", "found"),
    [
        ("exact:{answer}", WORDS, "{answer}"),
        ("exact:<<{answer}>>", WORDS, "<<{answer}>>"),
        ("exact:{{{answer}}}", WORDS, "{{{answer}}}"),
        ("exact:done", WORDS, "done"),
        ("number:{answer}", [{"answer": 5}, {"answer": "7"}], "{answer}"),
        (json.dumps(ONE_WORD), WORDS, "{answer}"),
        (json.dumps(LINE), [{"name": "x", "line": '{"a": "x"}'}], "{line}"),
        ("number:{answer}", [{"answer": "5"}, {"answer": "many"}], ""),  # not in all rows
        ("exact:{answer}", [], ""),
        ("contains:{answer}", WORDS, ""),  # a rule for whole sentences: their form is the model's own
        ("regex:(?is).*{answer}.*", WORDS, ""),
        ("regex:{answer}\\b.*", WORDS, ""),
        ('{"sum": [[1, {"contains": "{answer}"}], [1, {"words": [1, 2]}]]}', WORDS, ""),
        ('{"number": ["{answer}", "{high}"]}', [{"answer": 1, "high": 2}], ""),  # one of many
        ("words:1-3", WORDS, ""),
        ('{"json": {"required": ["a"]}}', WORDS, ""),
        (json.dumps(LINE), [{"name": "x", "line": '{"a": "y"}'}], ""),  # gets a part alone
    ],
)
def test_right_answer__gets_the_whole_reward_in_all_rows__is_a_template(
    rule: str, rows: list[dict[str, object]], found: str
) -> None:
    filled = [dict.fromkeys(RewardOptions(rule_text=rule).rule.fields, "") | row for row in rows]
    assert Checker(RewardOptions(rule_text=rule).rule).right_answer(filled) == found


def test_right_answer__row_without_the_field__is_refused_by_name() -> None:
    with pytest.raises(OperatorError, match="field 'answer' of the row is missing"):
        Checker(RewardOptions(rule_text="exact:{answer}").rule).right_answer([*WORDS, {"prompt": "Is it?"}])


def test_with_right_answer__chosen_by_the_owner__stays() -> None:
    for answer in ("", "{other}"):
        options = RewardOptions(rule_text="exact:{answer}", answer=answer)
        assert options.with_right_answer(WORDS) is options
    given = RewardOptions(rule_text='{"check": {"exact": "{answer}"}, "answer": "{answer}!"}')
    assert given.with_right_answer(WORDS) is given
    told = RewardOptions(rule_text="exact:{answer}").with_right_answer(WORDS)
    assert told.rule.answer is not None and told.rule.rows_each == 1 and told.batch_rows(18) == 18
    assert told.batch_rows(2) == 2 and replace(told, samples=64).batch_rows(None) == 16
    with pytest.raises(OperatorError, match=r"--batch-rows 1: give 2 or more, as any run"):
        told.batch_rows(1)
    drawn = RewardOptions(rule_text='{"check": {"exact": "{answer}"}, "answer": "{answer}!"}', answer="")
    assert drawn.rule.answer is None
