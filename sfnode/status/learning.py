"""Whether a loss has moved by more than its noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from sfnode.status.node_status import Status
from sfnode.status.status_detail import LossPoint

_HELD_OUT_MIN: Final = 6  # points: fewer say nothing of their noise
_TRAINING_MIN: Final = 40  # of batches of a few rows each
_PART: Final = 5  # the first and the last fifth are compared
_NOISES: Final = 2.0  # a drop of less than two standard errors may be chance


def describe_learning(status: Status) -> str:
    """Why it must be said that this node's run is not learning; empty where it learns, or where nothing is known.

    The held-out loss decides where this node measures it, else the loss of its training batches.
    """
    detail = status.detail
    if detail is None or not status.is_training:
        return ""
    held_out = [LossPoint(step=each.step, loss=each.loss) for each in detail.evaluations]
    if len(held_out) >= _HELD_OUT_MIN:
        return _complaint("held-out loss", held_out)
    if len(detail.losses) >= _TRAINING_MIN:
        return _complaint("training loss", detail.losses)
    return ""


def _complaint(what: str, points: Sequence[LossPoint]) -> str:
    if has_fallen([point.loss for point in points]):
        return ""
    start, end = _ends([point.loss for point in points])
    steps = f"since step {points[0].step} ({start:.3f}, now {end:.3f})"
    return f"not learning: the {what} has not fallen by more than its noise {steps}"


def has_fallen(losses: Sequence[float]) -> bool:
    """Whether the mean of the last fifth is below that of the first by more than two standard errors of both.

    The noise is that of neighbouring points: half the mean square of their differences is the variance of one.
    """
    start, end = _ends(losses)
    variance = sum((after - before) ** 2 for before, after in pairwise(losses)) / (2 * (len(losses) - 1))
    return start - end > _NOISES * math.sqrt(2 * variance / _part(losses))


def _ends(losses: Sequence[float]) -> tuple[float, float]:
    count = _part(losses)
    return sum(losses[:count]) / count, sum(losses[-count:]) / count


def _part(losses: Sequence[float]) -> int:
    return max(1, len(losses) // _PART)
