"""What is learnt: three public classification tasks, and the small model they are learnt with. Nothing is downloaded.

The model has read film reviews only. With these label words it starts near chance on every task, so that whatever it
can do in the end was learnt here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from transformers import PreTrainedModel

from protocol.errors import OperatorError
from protocol.run import Objective, TaskKind, TaskSpec
from sfnode.training.model import choose_dtype, load_causal_lm, load_tokenizer
from sfnode.training.task import TaskData, read_task

MODEL = "opt-reviews-4m"
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A data set with its prompt.

    Attributes:
        name: for people.
        template, label_words: as in a run's manifest; each word is one token of the model.
        train, tune, test: JSONL files below the data folder. Settings are chosen on ``tune``, results are of ``test``.
        test_rows: how many of the test file's first rows count.
        max_tokens: longer prompts lose their beginning: few of SST-2's and TREC's, half of AG News's.
    """

    name: str
    template: str
    label_words: tuple[str, ...]
    train: str
    tune: str
    test: str
    test_rows: int
    max_tokens: int


_ALL = (
    Task(
        name="sst2",
        template="{sentence} It was",
        label_words=(" no", " yes"),
        train="sst2/train_1024.jsonl",
        tune="sst2/valid_500.jsonl",
        test="sst2/dev_872.jsonl",
        test_rows=872,
        max_tokens=64,
    ),
    Task(
        name="trec",
        template="{text} It was",
        label_words=(" word", " thing", " meaning", " person", " place", " number"),
        train="trec/train_1024.jsonl",
        tune="trec/valid_500.jsonl",
        test="trec/test_500.jsonl",
        test_rows=500,
        max_tokens=40,
    ),
    Task(
        name="agnews",
        template="{text} It was about",
        label_words=(" world", " sport", " business", " computer"),
        train="agnews/train_1024.jsonl",
        tune="agnews/valid_500.jsonl",
        test="agnews/test_1000.jsonl",
        test_rows=500,
        max_tokens=48,
    ),
)
TASKS = {task.name: task for task in _ALL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """Where the data sets and the models lie."""

    data: Path
    models: Path

    def check(self, tasks: Iterable[Task]) -> None:
        """OperatorError that names the first file that is missing."""
        files = [self.data / name for task in tasks for name in (task.train, task.tune, task.test)]
        for file in (*files, self.models / MODEL / "config.json"):
            if not file.is_file():
                raise OperatorError(
                    f"{file} is missing. This benchmark needs the data sets SST-2, TREC and AG News as JSONL and the "
                    f"model {MODEL}, which are not part of the project: give their folders with --data and --models"
                )


def task_spec(task: Task, *, rows: int, objective: Objective = Objective.LOSS) -> TaskSpec:
    """The manifest's part about the task, with ``rows`` examples to a step."""
    return TaskSpec(
        kind=TaskKind.CLASSIFICATION,
        template=task.template,
        completion="",
        label_words=task.label_words,
        objective=objective,
        data="private",
        data_sha256="",
        max_tokens=task.max_tokens,
        batch_rows=rows,
    )


@lru_cache(maxsize=8)
def read(folders: Folders, task: Task, *, is_test: bool) -> TaskData:
    """Examples to train on, and to evaluate on: those of the test file, or those that settings are chosen with."""
    tokenizer = load_tokenizer(folders.models / MODEL)
    evaluation = folders.data / (task.test if is_test else task.tune)
    return read_task(tokenizer, task_spec(task, rows=1), folders.data / task.train, evaluation)


def load(folders: Folders) -> PreTrainedModel:
    """A fresh copy of the model, fp32 on the CPU."""
    return load_causal_lm(folders.models / MODEL, _CPU, choose_dtype("fp32"))
