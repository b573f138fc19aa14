"""The commands stand on the API: what they print of a run is what a program gets that asks `sfnode` for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from sfnode.api.local_model import LocalModel
from sfnode.api.runs import LocalRun, open_run, save_run
from sfnode.api.simulation import simulate
from sfnode.demo import data_file
from sfnode.run.task_options import TaskOptions
from tests.support.cli_calls import call

AT_STEP = 3
TASK = TaskOptions(template="{sentence} It was", labels=" no, yes")


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return LocalModel.load("embedded:tiny-opt")


@pytest.fixture(scope="module")
def folder(model: LocalModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a simulated run of four nodes and five steps."""
    rows = [json.loads(line) for line in data_file(split="train").read_text("utf-8").splitlines()]
    run = model.make_run(rows, TASK, steps=5)
    learner = model.learner(run, rows)
    folder = tmp_path_factory.mktemp("saved")
    save_run(run, simulate(run, lambda _: learner, 4).replica, folder)
    return folder


@pytest.fixture
def asked() -> Iterator[list[str]]:
    """Which methods of an opened run were called meanwhile."""
    calls: list[str] = []
    with mock.patch.multiple(LocalRun, state=_noted(calls, "state"), updates=_noted(calls, "updates")):
        yield calls


def _noted(calls: list[str], name: str) -> object:
    method = getattr(LocalRun, name)

    def noted(run: LocalRun, at_step: int | str | None = None) -> object:
        calls.append(f"{name} {at_step}")
        return method(run, at_step)

    return noted


def test_eval__of_a_step__measures_what_a_learner_does(folder: Path, model: LocalModel, asked: list[str]) -> None:
    held_out = data_file(split="eval")
    words = ("--at-step", AT_STEP, "--model", "embedded:tiny-opt", "--eval-data", held_out, "--dtype", "fp32", "--json")
    said = json.loads(call("eval", folder, *words).stdout)
    assert asked == [f"state {AT_STEP}"]
    run = open_run(folder)
    learner = model.learner(run, held_out=held_out)
    learner.show(run.state(AT_STEP).coefficients)
    found = learner.evaluate()
    assert (said["after"]["accuracy"], said["after"]["loss"]) == (found.accuracy, pytest.approx(found.loss, rel=1e-5))
    assert said["state_digest"] == run.state(AT_STEP).coefficients.digest().hex()


def test_log_show__of_some_steps__prints_the_updates_of_the_run(folder: Path, asked: list[str]) -> None:
    said = call("log", "show", folder, "--at-step", AT_STEP, "--limit", 0, "--json").stdout.splitlines()
    assert asked == [f"updates {AT_STEP}"]
    updates = list(open_run(folder).updates(AT_STEP))
    assert len(updates) == 4 * AT_STEP
    assert [(each["step"], each["author"]) for each in map(json.loads, said)] == [
        (update.step, update.author.hex()) for update in updates
    ]


@pytest.mark.parametrize("words", [("export", "--format", "peft", "--out"), ("ask", "a fine film", "--data-dir")])
def test_command__that_uses_the_model__takes_the_state_of_the_run(
    words: tuple[str, ...], folder: Path, asked: list[str], tmp_path: Path
) -> None:
    last = (tmp_path / "out", folder) if words[0] == "export" else (folder,)
    done = call(*words, *last, "--at-step", "best", "--model", "embedded:tiny-opt")
    assert asked == ["state best"] and "no best step is known" in done.error


def test_export__of_a_step_that_nobody_has_made_yet__says_how_many_there_are(folder: Path, tmp_path: Path) -> None:
    """A slip of the pen took the newest model without a word."""
    done = call("export", "--at-step", 99, "--out", tmp_path / "out", "--model", "embedded:tiny-opt", folder)
    assert done.code == 1 and "has updates of 5 steps, and not yet of 99" in done.error
    assert not (tmp_path / "out").exists()
