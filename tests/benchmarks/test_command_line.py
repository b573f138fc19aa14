"""An operator's mistake ends a benchmark with one line that says what is wrong, and never with a traceback."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.command_line import DOCS
from benchmarks.one_pass.training import private_shards
from protocol.errors import OperatorError

_LISTS = "is not a list of whole numbers separated by commas"


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("learn.__main__", "--seeds 0,b", _LISTS),
        ("paper.__main__", "--seeds x", _LISTS),
        ("paper.conditions", "--seeds 1;2", _LISTS),
        ("rewards.__main__", "--seeds x", _LISTS),
        ("members", "--seeds x", _LISTS),
        ("one_pass.__main__", "--authors 1,x", _LISTS),
        ("heads", "--authors x", _LISTS),
        ("scale", "--sizes 8,x", _LISTS),
        ("one_pass.__main__", "--authors 3", "--authors 3: give --rounds, too; without it they can be 1, 4, 16"),
        ("speeds.__main__", "--tasks chess", "--tasks 'chess': known are sst2"),
        ("audit_honesty.__main__", "--task chess", "'chess' is not one of 'sst2'"),
        ("audit_honesty.__main__", "--model embedded:none", "no embedded model 'none'"),
        ("costs.__main__", "step --shape round", "shape 'round': known are"),
        ("learn.__main__", "--write no/such/folder", "does not exist"),
        ("replay_time", "--updates 5 --authors 1 --cache no/such/folder/records", "no/such/folder/records"),
        ("learn.__main__", "--seeds 0 --write .", "leave out --seeds"),
    ],
)
def test_benchmark__wrong_value__says_so_in_one_line(name: str, words: str, said: str) -> None:
    found = CliRunner().invoke(import_module(f"benchmarks.{name}").main, words.split())
    assert isinstance(found.exception, SystemExit) and found.exit_code in (1, 2), found.exception
    assert said in found.output.splitlines()[-1]


@pytest.mark.parametrize("name", ["learn.__main__", "paper.__main__", "paper.conditions", "rewards.__main__"])
def test_benchmark__quick_into_the_documents__is_refused(name: str) -> None:
    """It would put the figures of a run that has learnt nothing in the place of those that were measured."""
    found = CliRunner().invoke(import_module(f"benchmarks.{name}").main, ["--quick", "--write", str(DOCS)])
    assert found.exit_code == 2 and "must not go into the documents" in found.output
    assert Path(DOCS, "learning.md").is_file()


def test_private_shards__more_rows_than_there_are__says_how_many_there_are() -> None:
    labels, chance = np.array([0, 1] * 10), np.random.default_rng(1)
    with pytest.raises(OperatorError, match="3 members with 8 rows each: there are 20 rows to give"):
        private_shards(labels, np.arange(20), chance, members=3, rows=8, skew=0.9)
