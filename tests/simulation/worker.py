"""What stands in for the training worker: scalars that follow from a key, quantised like real ones."""

from __future__ import annotations

import random

from protocol.errors import NumericError
from protocol.events import EstimateFinished, EstimateSkipped
from protocol.run.method import Method
from protocol.subspace.philox import words
from protocol.subspace.quantisation import quantise


def measured(method: Method, step: int, key: int, directions: int) -> EstimateFinished | EstimateSkipped:
    """What a worker answers: scalars drawn from ``key``, quantised like real ones, of the first ``directions``."""
    drawn = words(key, method.scalars)
    scale = method.clip * 2.0**method.quantum_exp
    slopes = [(int(word) / 2**31 - 1) * scale for word in drawn]
    scalars: list[int] = []
    try:
        for start in range(0, len(slopes), method.directions):
            scalars += quantise(method, slopes[start : start + directions])
    except NumericError:
        return EstimateSkipped(step=step)
    return EstimateFinished(step=step, scalars=tuple(scalars))


def random_scalars(method: Method, chosen: random.Random) -> tuple[int, ...]:
    """Valid scalars, for peers that make them up."""
    while True:
        directions = chosen.randint(1, method.blocks) * method.shares
        answer = measured(method, 0, chosen.getrandbits(64), directions)
        if isinstance(answer, EstimateFinished):
            return answer.scalars
