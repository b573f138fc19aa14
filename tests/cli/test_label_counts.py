"""What `sfnode init` says of label words that no row has, or few."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli_calls import call

MODEL = ("--model", "embedded:tiny-opt")


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ((0, 1, 2), ""),
        (
            (1, 1, 1),
            "no row has the label ' no', ' perhaps': nothing teaches it. If the labels are numbers",
        ),
        (
            (1, 2, 2),
            "no row has the label ' no': nothing teaches it. If the labels are numbers that begin with",
        ),
        ((0, 1, 1), "no row has the label ' perhaps': nothing teaches it\n"),
    ],
)
def test_init__label_that_no_row_has__is_named(labels: tuple[int, ...], said: str, tmp_path: Path) -> None:
    """Labels counted from 1 trained one off without a word where the last one was missing."""
    (data := tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({"sentence": f"a film {at}", "label": labels[at % 3]}) + "\n" for at in range(6))
    )
    words = ("--template", "{sentence} Good?", "--labels", " no, yes, perhaps")
    outcome = call("init", *MODEL, *words, "--plain", "--data", data, "--out", tmp_path / "a.run")
    assert said in outcome.stderr and ("no row has" in outcome.stderr) == bool(said)
    assert "prompts are cut" not in outcome.stderr


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((30, 10, 15), ""),
        ((40, 10, 11), "of 61 rows 40 have ' no', 10 have ' yes'. A run learns that first, and rare ones hardly"),
        ((1, 4, 7), "of 12 rows 7 have ' perhaps', 1 have ' no'. A run"),
        ((8, 2, 1), "of 11 rows 8 have ' no', 2 have ' yes', 1 have ' perhaps'. A run"),
        ((1000, 1, 0), "of 1,001 rows 1,000 have ' no', 1 have ' yes'. A run"),
    ],
)
def test_init__labels_that_are_uneven__are_counted_and_it_says_what_to_do(
    counts: tuple[int, ...], said: str, tmp_path: Path
) -> None:
    """Of 973 rows with one label and 51 with the other, a run learnt the first alone, and nothing had said so."""
    (data := tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({"sentence": "a", "label": at}) + "\n" for at in range(3) for _ in range(counts[at]))
    )
    words = ("--template", "{sentence} Good?", "--labels", " no, yes, perhaps", "--data", data)
    outcome = call("init", *MODEL, *words, "--plain", "--out", tmp_path / "a.run")
    assert outcome.code == 0 and said in outcome.stderr
    assert (
        ("Warning: labels are uneven" in outcome.stderr)
        == ("until none has over twice" in outcome.stderr)
        == bool(said)
    )
