"""Measure the model of a test network alone and at the run's end, and what each member has without the others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median

from protocol.run import SignedManifest, TaskSpec
from protocol.state import Coefficients
from sfnode.quality import Quality, SampleAnswer
from sfnode.rows import TaskTemplate, row_files
from sfnode.worker import evaluate_alone, evaluate_states
from sfnode.worker_protocol import TrainingConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Holds how good a model is on ``rows`` held-out rows.

    Attributes:
        predictions: its labels for the first rows; samples: its answers to them, in a run that learns from rewards.
        reward: mean reward; None where the run does not learn from rewards.
    """

    accuracy: float
    loss: float
    rows: int
    predictions: tuple[int, ...]
    reward: float | None = None
    samples: tuple[SampleAnswer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Holds a held-out prompt, the right label word, and the model's words before and after training."""

    prompt: str
    right: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Holds the accuracy that each node reaches from its own examples alone, by the run's rule."""

    accuracies: tuple[float, ...]
    median: float
    best: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """Holds what the evaluation data show.

    Attributes:
        before, after: the model alone, and at the run's end.
        answers: answers to the first prompts; empty where labels are not words.
        members: what each node knows without the others; None if that was not asked for.
    """

    before: Knowledge
    after: Knowledge
    answers: tuple[Answer, ...]
    members: Members | None = None

    @property
    def points(self) -> float:
        """Return how much the accuracy has risen, in percentage points."""
        return 100 * (self.after.accuracy - self.before.accuracy)


async def measure_learnt(
    signed: SignedManifest,
    config: TrainingConfig,
    state: Coefficients,
    known: Mapping[str, Knowledge],
    on_progress: Callable[[int, int], None],
) -> Learnt | None:
    """Return how good the model is alone and at ``state``; None without evaluation data.

    A state whose digest is in ``known`` is not measured again. ``on_progress`` hears how many rows are done.
    """
    data = config.eval_data
    if data is None:
        return None
    quality = Quality.of(signed.manifest.task)
    states = {each.digest().hex(): each for each in (Coefficients(signed.manifest), state)}
    new = [digest for digest in states if digest not in known]
    measured = {
        digest: Knowledge(
            accuracy=found.accuracy,
            loss=found.loss,
            rows=found.rows,
            predictions=found.predictions,
            reward=quality.reward(found.loss),
            samples=found.answers,
        )
        for digest, found in zip(
            new, await evaluate_states(signed, config, [states[each] for each in new], on_progress), strict=True
        )
    }
    ends = [{**known, **measured}[each] for each in states]
    before, after = ends[0], ends[-1]
    answers = _answers(signed.manifest.task, data, before, after)
    return Learnt(before=before, after=after, answers=answers)


async def measure_members(
    signed: SignedManifest, config: TrainingConfig, shards: Sequence[Path], on_progress: Callable[[int, int], None]
) -> Members:
    """Train a model on each of ``shards`` alone, one after the other, and measure it on the evaluation data."""
    found = []
    for number, shard in enumerate(shards):
        on_progress(number, len(shards))
        found.append((await evaluate_alone(signed, replace(config, data=shard), number.to_bytes(32, "big"))).accuracy)
    on_progress(len(shards), len(shards))
    return Members(accuracies=tuple(found), median=median(found), best=max(found))


def _answers(task: TaskSpec, data: Path, before: Knowledge, after: Knowledge) -> tuple[Answer, ...]:
    if not task.label_words:
        return ()
    words = [word.strip() for word in task.label_words]
    template = TaskTemplate(task)
    rows = islice(row_files.rows_of(data, template), len(after.predictions))
    texts = [template.texts(row, where) for where, row in rows]
    return tuple(
        Answer(prompt=row.prompt, right=words[row.label], before=words[old], after=words[new])
        for row, old, new in zip(texts, before.predictions, after.predictions, strict=True)
    )
