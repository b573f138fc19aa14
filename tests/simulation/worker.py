"""What stands in for the training worker: scalars that follow from a key, quantised like real ones."""

from __future__ import annotations

import random

import numpy as np

from protocol.errors import NumericError
from protocol.events import EstimateFinished, EstimateSkipped
from protocol.run.manifest import Manifest
from protocol.subspace.philox import words
from protocol.subspace.quantisation import quantise, quantise_dense


def measured(manifest: Manifest, step: int, key: int, directions: int) -> EstimateFinished | EstimateSkipped:
    """What a worker answers: scalars drawn from ``key``, quantised like real ones, of the first ``directions``.

    With a dense core of so many rows: most messages are too long before they are quantised.
    """
    method = manifest.method
    if method.is_dense:
        mean = (words(key, manifest.numbers - 1) / 2**31 - 1) * method.clip * 2.0**method.quantum_exp
        return EstimateFinished(step=step, scalars=quantise_dense(method, directions, mean.astype(np.float64)))
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


def random_scalars(manifest: Manifest, chosen: random.Random) -> tuple[int, ...]:
    """Valid scalars, for peers that make them up."""
    method = manifest.method
    while True:
        directions = chosen.randint(1, method.blocks) * method.shares
        answer = measured(manifest, 0, chosen.getrandbits(64), directions)
        if isinstance(answer, EstimateFinished):
            return answer.scalars
