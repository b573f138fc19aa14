"""Measure the model of a test network alone and at the run's end, and what each member has without the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from protocol.run import SignedManifest
from protocol.state import Coefficients
from sfnode.quality_figures import Quality
from sfnode.storage import EvaluatedStep
from sfnode.worker import evaluate_alone, evaluate_states, evaluated_step
from sfnode.worker_protocol import TrainingConfig


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

    before: EvaluatedStep
    after: EvaluatedStep
    members: Members | None = None

    @property
    def points(self) -> float:
        """Return how much the accuracy has risen, in percentage points."""
        return 100 * (self.after.accuracy - self.before.accuracy)


async def measure_learnt(
    signed: SignedManifest, config: TrainingConfig, state: Coefficients, on_progress: Callable[[int, int], None]
) -> Learnt | None:
    """Measure the model alone and at the end, with ``state``; None without evaluation data."""
    if config.eval_data is None:
        return None
    manifest, quality = signed.manifest, Quality.of(signed.manifest.task)
    before, after = await evaluate_states(signed, config, [Coefficients(manifest), state], on_progress)
    return Learnt(before=evaluated_step(before, 0, quality), after=evaluated_step(after, manifest.steps, quality))


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
