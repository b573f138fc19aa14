"""The run beside its members, on the embedded model and reviews."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import members as command
from benchmarks.learn.problems import Folders, ModelChoice, Task, load, read
from benchmarks.learn.trials import NetworkTrial
from benchmarks.members import BesideMembers, compare
from sfnode.demo import data_file
from sfnode.run.builtin_tasks import BUILTIN_TASKS
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import TaskData

MODEL = ModelChoice(reference="embedded:tiny-opt", dtype="fp32")
RECIPE = NetworkTrial(steps=3, tune_steps=1, rates=(), rows=4, core="dense")


@pytest.fixture(scope="module")
def task() -> Task:
    known = BUILTIN_TASKS["embedded:reviews"]
    train, test = (str(data_file(split=split)) for split in ("train", "eval"))
    return Task(
        name="reviews",
        template=known.template,
        label_words=known.label_words,
        train=train,
        tune=test,
        test=test,
        test_rows=24,
        max_tokens=48,
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    empty = tmp_path_factory.mktemp("nothing")
    return Folders(data=empty, models=empty)


@pytest.fixture(scope="module")
def data(folders: Folders, task: Task) -> TaskData:
    return read(folders, MODEL, task, is_test=True)


def compared(folders: Folders, task: Task, data: TaskData, members: int) -> tuple[BesideMembers, list[int]]:
    shared = SharedModel(load(folders, MODEL))
    return compare(task, data, shared, members=members, rows=8, recipe=replace(RECIPE, clients=members), seed=1)


def test_members__one_alone__is_the_run_and_the_pooled_run(folders: Folders, task: Task, data: TaskData) -> None:
    found, given = compared(folders, task, data, 1)
    assert found.alone == [found.run] and found.run == found.pooled != found.start
    assert len(given) == 8


def test_members__three__have_rows_of_their_own_and_together_another_model(
    folders: Folders, task: Task, data: TaskData
) -> None:
    found, given = compared(folders, task, data, 3)
    assert len(set(given)) == len(given) == 24
    labels = [[data.examples[place].label for place in given[first : first + 8]] for first in (0, 8, 16)]
    assert all(part.count(number % 2) >= 6 for number, part in enumerate(labels))
    played = [*found.alone, found.run, found.pooled]
    assert len({each.loss for each in played}) == len(played) and found.start not in played


def test_members__without_data__says_what_is_missing(tmp_path: Path) -> None:
    result = CliRunner().invoke(command.main, ["--data", str(tmp_path)])
    assert result.exit_code == 1 and "make data" in result.output


def test_members__unknown_task__says_which_are_known() -> None:
    result = CliRunner().invoke(command.main, ["--tasks", "chess"])
    assert result.exit_code == 1 and "'chess': known are sst2" in result.output
