"""Measure the model of a test network alone and at the run's end, and what each member has without the others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from protocol.run import SignedManifest
from protocol.state import Coefficients
from sfnode.quality_figures import AnswerSpread, Quality, SampleAnswer
from sfnode.worker import evaluate_alone, evaluate_states
from sfnode.worker_protocol import TrainingConfig, messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Holds how good a model is on ``rows`` held-out rows.

    Attributes:
        predictions: its labels for the first rows.
        samples: its answers to them, in words; empty where it gives none.
        reward: mean reward; None where the run does not learn from rewards. spread: how unlike its answers are.
    """

    accuracy: float
    loss: float
    rows: int
    predictions: tuple[int, ...]
    reward: float | None = None
    samples: tuple[SampleAnswer, ...] = ()
    spread: AnswerSpread | None = None


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
        members: what each node knows without the others; None if that was not asked for.
    """

    before: Knowledge
    after: Knowledge
    members: Members | None = None

    @property
    def points(self) -> float:
        """Return how much the accuracy has risen, in percentage points."""
        return 100 * (self.after.accuracy - self.before.accuracy)


async def measure_learnt(
    signed: SignedManifest,
    config: TrainingConfig,
    state: Coefficients,
    on_progress: Callable[[int, int], None],
    known: Mapping[str, messages.Evaluated],
) -> Learnt | None:
    """Measure the model alone and at ``state``; None without evaluation data. The last two as `evaluate_states`."""
    if config.eval_data is None:
        return None
    quality = Quality.of(signed.manifest.task)
    before, after = (
        Knowledge(
            accuracy=found.accuracy,
            loss=found.loss,
            rows=found.rows,
            predictions=found.predictions,
            reward=quality.reward(found.loss),
            samples=found.answers,
            spread=found.spread,
        )
        for found in await evaluate_states(signed, config, [Coefficients(signed.manifest), state], on_progress, known)
    )
    return Learnt(before=before, after=after)


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
