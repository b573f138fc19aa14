"""Judge whether a loss has fallen, or a reward has risen, by more than its noise."""

import math
from collections.abc import Sequence
from itertools import pairwise

from sfnode.quality_figures import Quality
from sfnode.status.node_status import Status
from sfnode.status.status_detail import LossPoint
from sfnode.storage import evaluations

_HELD_OUT_MIN = 6  # points: fewer do not show their noise
_TRAINING_MIN = 40  # points; each is the loss of a few rows, so more are needed
_PART = 5  # the first and the last fifth are compared
_NOISES = 2.0  # a drop of less than two standard errors may be chance
_SOLVED = 0.98  # a mean reward that can hardly rise


def describe_learning(status: Status) -> str:
    """Return why the run does not seem to learn; empty where it learns or nothing is known.

    The held-out loss decides if this node measures it often enough, else the loss of its training batches. Of rewards,
    the last evaluations are compared with the first, the model alone: a rule may be learnt in a tenth of the run.
    """
    if status.detail is None or not status.training.is_training:
        return ""
    curve, quality = status.detail.curve, Quality(status.life.is_rewarded)
    if said := evaluations.one_answer_in_words(curve.evaluations):
        return said
    held_out = [LossPoint(step=each.step, loss=each.loss) for each in curve.evaluations]
    if len(held_out) >= _HELD_OUT_MIN:
        return _complaint("held-out loss", held_out, quality, first=1 if quality.is_reward else None)
    if len(curve.losses) >= _TRAINING_MIN:
        return _complaint("training loss", curve.losses, quality)
    return ""


def _complaint(what: str, points: Sequence[LossPoint], quality: Quality, first: int | None = None) -> str:
    losses = [point.loss for point in points]
    start, end = _ends(losses, first)
    if has_fallen(losses, first) or (quality.is_reward and quality.value(end) >= _SOLVED):
        return ""
    steps = f"since step {points[0].step} ({quality.figure(start, 3)}, now {quality.figure(end, 3)})"
    if not quality.is_reward:
        return f"not learning: the {what} has not fallen by more than its noise {steps}"
    whose = "on held-out data" if what.startswith("held-out") else "of the sampled answers"
    return f"not learning: the mean reward {whose} has not risen by more than its noise {steps}"


def has_fallen(losses: Sequence[float], first: int | None = None) -> bool:
    """Return whether the mean of the last fifth is below that of the first by more than two standard errors.

    The noise is estimated from neighbouring points: the variance of one is half the mean square of their differences.
    ``first``: compare with so few of the first points. None: a fifth of all.
    """
    start, end = _ends(losses, first)
    variance = sum((after - before) ** 2 for before, after in pairwise(losses)) / (2 * (len(losses) - 1))
    means = 1 / (first or _part(losses)) + 1 / _part(losses)  # the variances of both means, of one point's
    return start - end > _NOISES * math.sqrt(variance * means)


def _ends(losses: Sequence[float], first: int | None) -> tuple[float, float]:
    count = _part(losses)
    begun = losses[: first or count]
    return sum(begun) / len(begun), sum(losses[-count:]) / count


def _part(losses: Sequence[float]) -> int:
    return max(1, len(losses) // _PART)
