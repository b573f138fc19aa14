"""What a test network's model knew before, at the run's start, and at its end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from protocol.run import SignedManifest, TaskSpec
from protocol.state import Coefficients
from sfnode.worker import TrainingConfig, evaluate_states


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """How good a model is on so many held-out rows; ``predictions``: labels of the first ones."""

    accuracy: float
    loss: float
    rows: int
    predictions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the model says to a held-out prompt: the right label's word, and its own before and after."""

    prompt: str
    right: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """Measured on the evaluation data.

    Attributes:
        before, started, after: the model alone, at the run's start, at its end.
        answers: to the first prompts, where labels are words.
    """

    before: Knowledge
    started: Knowledge
    after: Knowledge
    answers: tuple[Answer, ...]

    @property
    def points(self) -> float:
        """By how much the accuracy has risen, in percentage points."""
        return 100 * (self.after.accuracy - self.before.accuracy)


async def measure_learnt(signed: SignedManifest, config: TrainingConfig, state: Coefficients) -> Learnt | None:
    """None without evaluation data. ``state``: at the end."""
    data = config.eval_data
    if data is None:
        return None
    before, started, after = (
        Knowledge(accuracy=found.accuracy, loss=found.loss, rows=found.rows, predictions=found.predictions)
        for found in await evaluate_states(signed, config, [None, Coefficients(signed.manifest), state])
    )
    answers = _answers(signed.manifest.task, Path(data), before, after)
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
