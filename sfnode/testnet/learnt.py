"""Measure the model of a test network alone, at the run's start, and at its end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from protocol.run import SignedManifest, TaskSpec
from protocol.state import Coefficients
from sfnode.worker import evaluate_states
from sfnode.worker_protocol import TrainingConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Holds how good a model is on ``rows`` held-out rows; ``predictions``: its labels for the first ones."""

    accuracy: float
    loss: float
    rows: int
    predictions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Holds a held-out prompt, the right label word, and the model's words before and after training."""

    prompt: str
    right: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """Holds what the evaluation data show.

    Attributes:
        before, started, after: the model alone, at the run's start, at its end.
        answers: answers to the first prompts; empty where labels are not words.
    """

    before: Knowledge
    started: Knowledge
    after: Knowledge
    answers: tuple[Answer, ...]

    @property
    def points(self) -> float:
        """Return how much the accuracy has risen, in percentage points."""
        return 100 * (self.after.accuracy - self.before.accuracy)


async def measure_learnt(signed: SignedManifest, config: TrainingConfig, state: Coefficients) -> Learnt | None:
    """Measure the model alone, at the run's start and at ``state``, its end; None without evaluation data."""
    data = config.eval_data
    if data is None:
        return None
    before, started, after = (
        Knowledge(accuracy=found.accuracy, loss=found.loss, rows=found.rows, predictions=found.predictions)
        for found in await evaluate_states(signed, config, [None, Coefficients(signed.manifest), state])
    )
    answers = _answers(signed.manifest.task, data, before, after)
    return Learnt(before=before, started=started, after=after, answers=answers)


def _answers(task: TaskSpec, data: Path, before: Knowledge, after: Knowledge) -> tuple[Answer, ...]:
    if not task.label_words:
        return ()
    words = [word.strip() for word in task.label_words]
    with data.open(encoding="utf-8", newline="\n") as lines:
        rows = [json.loads(line) for line in islice(filter(str.strip, lines), len(after.predictions))]
    return tuple(
        Answer(prompt=task.template.format(**row), right=words[row["label"]], before=words[old], after=words[new])
        for row, old, new in zip(rows, before.predictions, after.predictions, strict=True)
    )
