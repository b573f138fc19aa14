"""What a page shows of a data directory, and what it never shows."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from sfnode.page.node_page import AUTHORS_MAX, LogTail, Page
from sfnode.quality_figures import SampleAnswer
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.evaluations import EvaluatedStep, EvaluationsFile, Gain
from tests.support.ledgers import exclude, ledger_of, seal, signer
from tests.support.made_pages import MadeNode

TWO = (("bad", 0.0), ("good", 1.0))


@pytest.fixture
def made(tmp_path: Path) -> MadeNode:
    node = MadeNode(tmp_path)
    node.link(1, 2)
    node.advance(60)
    return node


def sections(page: Page) -> dict[str, Any]:
    """As a browser gets them."""
    plain: dict[str, Any] = json.loads(json.dumps(page.sections()))
    return plain


def test_page__node_at_work__shows_where_it_stands(made: MadeNode) -> None:
    shown = sections(made.page())
    assert (shown["status"]["step"], shown["run"]["steps"], shown["run"]["is_live"]) == (60, 400, True)
    assert shown["status"]["words"]["stage"] == "step 60/400" and shown["status"]["words"]["pace"] == "2.5 steps/s"
    assert shown["losses"][-1] == [55, 0.65889]
    assert shown["evaluations"]["points"][-1] == [60, 0.63333, 0.56]
    assert shown["evaluations"]["best_step"] == 60
    assert [(each["updates"], each["is_own"]) for each in shown["authors"]] == [(60, True), (40, False), (20, False)]
    assert [each["author"] for each in shown["neighbours"]] == [signer(1).author.hex(), signer(2).author.hex()]


def test_page__gain__is_what_was_measured_last_or_else_since_the_first_evaluation(made: MadeNode) -> None:
    since_start = sections(made.page())["gain"]
    assert since_start["figures"] == [["the model alone", "50.0 %"], ["the run now", "56.0 %"]]
    assert since_start["note"].endswith("`sfnode eval --compare` measures own data alone, too.")
    before, own, after = (
        EvaluatedStep(step=24 if share > 0.6 else 0, accuracy=share, loss=0.5, rows=9) for share in (0.55, 0.72, 0.8)
    )
    DataDirectory(made.directory).gain.write(Gain(before=before, own=own, after=after))
    shown = sections(made.page())
    assert shown["gain"] == {
        "figures": [["the model alone", "55.0 %"], ["the run now", "80.0 %"], ["own data alone", "72.0 %"]],
        "note": "Measured at step 24 on 9 held-out rows.",
    }
    assert shown["run"]["learns"] == "to answer no or yes to: {sentence} It was"


def test_page__author_is_excluded__shows_what_was_measured_before_their_first_step_that_counts_no_more(
    made: MadeNode,
) -> None:
    assert made.ledger is not None
    made.ledger.add_statement(exclude(made.manifest, 2, 20))
    shown = sections(made.page())
    assert [step for step, *_ in shown["evaluations"]["points"]] == [0, 10, 20]
    assert shown["evaluations"]["best_step"] == 20
    assert shown["gain"]["figures"] == [["the model alone", "50.0 %"], ["the run now", "52.0 %"]]
    made.ledger = None  # it is being read, so nobody knows yet what counts
    assert sections(made.page())["evaluations"]["points"] == []


@pytest.mark.parametrize("is_public", [False, True])
def test_page__answers_to_rows_with_labels__are_shown_only_of_rows_that_anybody_may_see(
    made: MadeNode, is_public: bool
) -> None:
    told = [SampleAnswer(prompt="a member's row", text=text, reward=right, right="good") for text, right in TWO]
    before, after = (EvaluatedStep(step=9, accuracy=0.5, loss=0.5, rows=9, answers=(each,)) for each in told)
    DataDirectory(made.directory).gain.write(Gain(before=before, own=None, after=after, is_public=is_public))
    shown = sections(made.page())
    answers = [["the model alone", "bad", 0.0], ["the run now", "good", 1.0]]
    assert shown["answers"] == (
        [{"prompt": "a member's row", "right": "good", "answers": answers}] if is_public else []
    )
    assert ("a member's row" in json.dumps(shown)) == is_public


def test_page__status_of_an_earlier_process__is_not_shown(made: MadeNode) -> None:
    made.advance(60, pid=1)
    assert sections(made.page())["status"] is None


def test_page__files_that_cannot_be_read__leave_their_sections_empty(made: MadeNode) -> None:
    for name in ("status.json", "evaluations.json", "gain.json"):
        (made.directory / name).write_text("{")
    shown = sections(made.page())
    assert (shown["status"], shown["evaluations"]["points"], shown["gain"]["figures"]) == (None, [], [])
    assert "`sfnode eval --compare` measures the model alone, the run now and own data alone" in shown["gain"]["note"]


def test_page__ledger_not_read_yet__shows_no_author(made: MadeNode) -> None:
    made.ledger = None
    assert sections(made.page())["authors"] == []


def test_page__more_authors_than_it_shows__this_node_is_among_them(made: MadeNode) -> None:
    others = [seal(made.manifest, author, step) for author in range(1, AUTHORS_MAX + 5) for step in range(2)]
    made.ledger = ledger_of(made.manifest, [*others, seal(made.manifest, 0, 0)])
    shown = sections(made.page())
    assert (len(shown["authors"]), shown["authors_in_all"]) == (AUTHORS_MAX, AUTHORS_MAX + 5)
    assert shown["authors"][-1]["is_own"]


def test_page__invitation_in_an_address__is_nowhere(made: MadeNode) -> None:
    secret = "invite:F2-X-FWDE4"
    made.advance(60, join=f"sfnode:6f1c@/ip4/203.0.113.7/tcp/4001/p2p/12D3?{secret}", join_string=f"sfnode:v1.{secret}")
    made.tail.take(logging.INFO, (f"others join with: sfnode join sfnode:6f1c@...?{secret} now", f"use {secret}"))
    text = json.dumps(made.page().sections())
    assert "F2-X-FWDE4" not in text
    assert "others join with: sfnode join sfnode:... now" in text


def test_log_tail__very_many_long_lines__keeps_the_last_ones_short() -> None:
    tail = LogTail()
    for number in range(1_000):
        tail.take(logging.INFO, (f"{number} \x1b[2J" + "x" * 10_000,))
    assert len(tail.lines) == 100
    assert tail.lines[-1][2].startswith("999 \\x1b[2Jx") and len(tail.lines[-1][2]) == 400


def test_page__without_a_node__takes_whatever_status_there_is(made: MadeNode) -> None:
    made.advance(60, pid=1)
    page = Page(DataDirectory(made.directory), made.manifest, lambda: made.ledger)
    shown = sections(page)
    assert (shown["status"]["step"], shown["run"]["is_live"]) == (60, False)


def test_page__node_with_evaluations__reads_them_once_a_look(made: MadeNode) -> None:
    """Three times, and 10,000 evaluations kept the node busy for 0.4 s of each second while a browser looked."""
    with mock.patch.object(EvaluationsFile, "read", autospec=True, side_effect=EvaluationsFile.read) as read:
        assert sections(made.page())["evaluations"]["points"]
    assert read.call_count == 1


def test_page__of_a_running_node__shows_the_names_it_has_checked_and_reads_none(made: MadeNode) -> None:
    """A fault once: each look verified the signatures of up to 1,024 names and of the manifest."""
    author = sections(made.page())["authors"][0]["author"]
    page = Page(DataDirectory(made.directory), made.manifest, lambda: made.ledger, said=lambda: {author: "Ann"})
    with mock.patch.object(DataDirectory, "reading", side_effect=AssertionError("reads the names")):
        found = {each["author"]: each["name"] for each in sections(page)["authors"]}
    assert found[author] == "Ann" and "" in found.values()
