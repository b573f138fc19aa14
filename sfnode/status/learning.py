"""Judge whether a loss has fallen by more than its noise."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from sfnode.status.node_status import Status
from sfnode.status.status_detail import LossPoint

_HELD_OUT_MIN: Final = 6  # points: fewer do not show their noise
_TRAINING_MIN: Final = 40  # points; each is the loss of a few rows, so more are needed
_PART: Final = 5  # the first and the last fifth are compared
_NOISES: Final = 2.0  # a drop of less than two standard errors may be chance


def describe_learning(status: Status) -> str:
    """Return why the run does not seem to learn; empty where it learns or nothing is known.

    The held-out loss decides if this node measures it often enough, else the loss of its training batches.
    """
    if status.detail is None or not status.training.is_training:
        return ""
    curve = status.detail.curve
    held_out = [LossPoint(step=each.step, loss=each.loss) for each in curve.evaluations]
    if len(held_out) >= _HELD_OUT_MIN:
        return _complaint("held-out loss", held_out)
    if len(curve.losses) >= _TRAINING_MIN:
        return _complaint("training loss", curve.losses)
    return ""


def _complaint(what: str, points: Sequence[LossPoint]) -> str:
    if has_fallen([point.loss for point in points]):
        return ""
    start, end = _ends([point.loss for point in points])
    steps = f"since step {points[0].step} ({start:.3f}, now {end:.3f})"
    return f"not learning: the {what} has not fallen by more than its noise {steps}"


def has_fallen(losses: Sequence[float]) -> bool:
    """Return whether the mean of the last fifth is below that of the first by more than two standard errors.

    The noise is estimated from neighbouring points: the variance of one is half the mean square of their differences.
    """
    start, end = _ends(losses)
    variance = sum((after - before) ** 2 for before, after in pairwise(losses)) / (2 * (len(losses) - 1))
    # The difference of two means has twice the variance of one mean.
    return start - end > _NOISES * math.sqrt(2 * variance / _part(losses))


def _ends(losses: Sequence[float]) -> tuple[float, float]:
    count = _part(losses)
    return sum(losses[:count]) / count, sum(losses[-count:]) / count


def _part(losses: Sequence[float]) -> int:
    return max(1, len(losses) // _PART)
