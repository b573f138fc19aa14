"""The page and the report of a run that learns from rewards: curves that rise, and answers before and after."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sfnode.page.run_facts import facts_of
from sfnode.quality_figures import SampleAnswer
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.evaluations import EvaluatedStep, Gain
from tests import REPOSITORY
from tests.support.cli_calls import call
from tests.support.made_pages import MadeNode
from tests.support.manifests import small_manifest
from tests.support.reward_runs import RULE, rewarded


def answers(text: str, reward: float) -> tuple[SampleAnswer, ...]:
    return tuple(SampleAnswer(prompt="a secret of a member", text=text, reward=reward) for _ in range(3))


@pytest.fixture
def made(tmp_path: Path) -> MadeNode:
    manifest = small_manifest(core="dense", steps=400)
    node = MadeNode(tmp_path, manifest=replace(manifest, task=rewarded(manifest.task)))
    node.advance(20, loss=0.75, reward=0.25, is_rewarded=True)
    before = EvaluatedStep(step=0, accuracy=0.1, loss=0.8, rows=9, reward=0.2, answers=answers("no\x1b[2J", 0.0))
    after = EvaluatedStep(step=20, accuracy=0.4, loss=0.5, rows=9, reward=0.5, answers=answers("</script>yes", 1.0))
    DataDirectory(tmp_path).evaluations.write([before, after])
    return node


def test_page__rewards__rise_where_losses_fall(made: MadeNode) -> None:
    shown: dict[str, Any] = json.loads(json.dumps(made.page().sections()))
    assert shown["run"]["is_rewarded"] is True and shown["status"]["reward"] == 0.25
    assert shown["run"]["draws_answers"] is True
    assert shown["evaluations"]["points"] == [[0, 0.2, 0.1], [20, 0.5, 0.4]]
    assert shown["evaluations"]["best_step"] == 20
    assert shown["losses"][0] == [0, 0.28] and shown["losses"][-1][1] > 0.28
    assert shown["gain"]["figures"] == [["the model alone", "0.20"], ["the run now", "0.50"]]
    assert shown["run"]["learns"].startswith("to answer to: ") and " An answer gets 1 if " in shown["run"]["learns"]


def test_page__rows_that_name_right_answers__has_rewards_and_draws_none(tmp_path: Path) -> None:
    """The key of the curve said "answers that this node sampled", of which there was none."""
    manifest = small_manifest(core="dense", steps=400)
    task = rewarded(manifest.task, {**RULE, "answer": "{wanted}"})
    run = MadeNode(tmp_path, manifest=replace(manifest, task=task)).page().sections()["run"]
    assert isinstance(run, dict) and (run["is_rewarded"], run["draws_answers"]) == (True, False)
    script = (REPOSITORY / "sfnode" / "page" / "static" / "page.js").read_text("utf-8")
    assert 'run.draws_answers ? "answers that this node sampled"' in script
    assert 'held.points.length || run.draws_answers ? "Mean reward" : "Chance of a right token"' in script  # read aloud


def test_page__answers__are_shown_escaped_and_only_where_anybody_may_see_the_rows(made: MadeNode) -> None:
    """A fault once: a page showed answers of private prompts, and in a task of extraction the answer is the row."""
    shown = made.page().sections()
    assert shown["answers"] == [] and "secret" not in json.dumps(shown)
    directory = DataDirectory(made.directory)
    before, after = directory.evaluations.read()
    directory.gain.write(Gain(before=before, own=None, after=after, is_public=True))
    answers = [["the model alone", "no\\x1b[2J", 0.0], ["the run now", "</script>yes", 1.0]]
    shown = made.page().sections()
    assert shown["answers"] == [{"prompt": "a secret of a member", "right": "", "answers": answers}] * 3


def test_page__labels__has_no_answers(tmp_path: Path) -> None:
    node = MadeNode(tmp_path)
    node.advance(20)
    shown = node.page().sections()
    run = shown["run"]
    assert shown["answers"] == [] and isinstance(run, dict) and run["is_rewarded"] is False


def test_facts__rewards__name_the_rule_and_what_is_raised(made: MadeNode) -> None:
    facts = dict(facts_of(made.manifest))
    assert facts["Raises"] == "mean reward" and "Lowers" not in facts
    assert facts["Reward"] == made.manifest.task.completion
    assert dict(facts_of(small_manifest()))["Lowers"] == "loss"


def test_report__rewards__holds_answers_that_cannot_end_its_data(made: MadeNode, tmp_path: Path) -> None:
    made.advance(0)
    made.store()
    before, after = (
        EvaluatedStep(step=at, accuracy=0.1, loss=0.8, rows=9, reward=0.2, answers=answers("</script>yes", 1.0))
        for at in (0, 20)
    )
    DataDirectory(made.directory).gain.write(Gain(before=before, own=None, after=after, is_public=True))
    out = tmp_path / "run.html"
    assert call("report", made.directory, "--out", out).code == 0
    text = out.read_text("utf-8")
    assert "yes" in text and "</script>yes" not in text
