"""The demo's data set is what its script makes, balanced, and without a sentence in common between its parts."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest

from protocol.errors import OperatorError
from sfnode.demo import DATA_NAME, FOLDER, data_file, model_folder
from tests.demo import make_data
from tests.demo.grammar import Review, review, statement

BYTES_MAX = 4_000_000


def _rows(split: str) -> list[Review]:
    lines = data_file(DATA_NAME, split).read_text("utf-8").splitlines()
    return [Review(**json.loads(line)) for line in lines]


def test_demo_data__script_run_again__gives_the_committed_rows() -> None:
    train, held_out = make_data.make_reviews()
    assert list(train) == _rows("train")
    assert list(held_out) == _rows("eval")


@pytest.mark.parametrize(("split", "rows"), [("train", 1024), ("eval", 512)])
def test_demo_data__each_split__is_balanced(split: str, rows: int) -> None:
    assert Counter(row.label for row in _rows(split)) == {0: rows // 2, 1: rows // 2}


def test_demo_data__both_splits__share_no_sentence() -> None:
    sentences = [row.sentence for split in ("train", "eval") for row in _rows(split)]
    assert len(set(sentences)) == len(sentences)


def test_demo_grammar__many_reviews__read_as_sentences() -> None:
    random = Random(1)
    for _ in range(2_000):
        sentence = review(random).sentence
        assert sentence[0].isupper()
        assert sentence.endswith(".")
        assert "  " not in sentence
        assert " a a" not in sentence.lower()
        assert sentence.isascii()


def test_demo_grammar__statement__holds_no_opinion_word() -> None:
    random = Random(2)
    opinions = {" awful ", " good ", " hated ", " loved "}
    assert not any(opinion in statement(random) for opinion in opinions for _ in range(200))


def test_demo_folder__all_files__stay_below_four_megabytes() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < BYTES_MAX


@pytest.mark.parametrize("name", ["", "none", "..", "reviews", "/"])
def test_demo_model_folder__unknown_name__names_what_there_is(name: str) -> None:
    with pytest.raises(OperatorError, match="tiny-opt"):
        model_folder(name)


@pytest.mark.parametrize(("name", "split"), [("none", "train"), ("reviews", "test"), ("..", "train"), ("", "eval")])
def test_demo_data_file__unknown_name__names_what_there_is(name: str, split: str) -> None:
    with pytest.raises(OperatorError, match="reviews/eval, reviews/train"):
        data_file(name, split)
