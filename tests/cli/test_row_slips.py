"""Rows of a new run that may be slips: `sfnode init` counts them and names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfnode.rows import row_slips
from sfnode.run import RewardOptions
from sfnode.run.builtin_tasks import TaskTexts
from tests.support.cli_calls import call


@pytest.mark.parametrize("is_list", [False, True])
def test_init__rows_that_may_be_slips__are_counted_and_one_is_named(is_list: bool, tmp_path: Path) -> None:
    """Rows that a script had written twice counted twice, and of a repeated key one value was lost, without a word."""
    rows = [
        '{"sentence": "a film", "label": 0}',
        '{"sentence": "a play", "label": 1}',
        '{"sentence": " ", "label": 1}',
        '{"sentence": "a book", "note": {"a": 1, "a": 2}, "label": 1}',  # within another object nothing is lost
        '{"sentence": "a", "label": 1, "sentence": "a song"}',
        '{"label": 0, "sentence": "a film", "id": 7}',
        '{"label": 1, "sentence": "a film"}',  # another label: it is another row
        '{"sentence": "a play", "label": 1}',
    ]
    data = tmp_path / "rows.jsonl"
    data.write_text(f"[{', '.join(rows)}]" if is_list else "\n".join(rows), "utf-8")
    given = ("--model", "embedded:tiny-opt", "--template", "{sentence} it was", "--labels", "bad,good", "--plain")
    made = call("init", *given, "--data", data, "--private-data", "--out", tmp_path / "a.run")
    assert made.code == 0, made
    first, third, fifth, sixth = (f"{data}{': item ' if is_list else ':'}{number}" for number in (1, 3, 5, 6))
    assert [line for line in made.stderr.splitlines() if line.startswith("Warning")] == [
        f"Warning: rows that are the same as an earlier one: 2 of 8 ({sixth}, as {first}, and others). They "
        "count again: leave them out if that is a slip",
        f"Warning: rows with an empty text: 1 of 8 ({third}, 'sentence'). "
        "Complete these, or leave them out, if that is a slip",
        f"Warning: rows with a key twice: 1 of 8 ({fifth}, 'sentence'). Its last value counts: leave one out",
    ]


def test_looked_at__rows_that_differ_in_a_number_alone__are_two(tmp_path: Path) -> None:
    """Python hashes -1 as it hashes -2."""
    data = tmp_path / "rows.jsonl"
    data.write_text('{"prompt": "a", "n": -1}\n{"prompt": "a", "n": -2}\n', "utf-8")
    texts = TaskTexts(template="{prompt}", completion=RewardOptions(rule_text="exact:{n}").document, is_reward=True)
    assert row_slips.looked_at(data, texts.row_template)[1] == []
