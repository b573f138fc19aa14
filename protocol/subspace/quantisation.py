"""From projected gradients to the integers that travel (SPEC 5)."""

import math
from collections.abc import Sequence

import numpy as np

from protocol.crypto import hashing
from protocol.errors import NumericError
from protocol.run import Method, ScalarKind

NORMALISED_UNIT = 32  # an rms projected gradient becomes 32: rounding costs 1.5 % of it


def quantise(method: Method, projected_gradients: Sequence[float]) -> tuple[int, ...]:
    """Return the D scalars of one local step; directions beyond the given projected gradients get 0.

    NumericError: a projected gradient is not finite, or all are zero where they must be normalised: skip the step.
    """
    if not all(map(math.isfinite, projected_gradients)):
        raise NumericError("a projected gradient is not finite: the loss overflowed; this step is skipped")
    if method.scalar is ScalarKind.RAW:
        return _padded(method, [_clipped(g * 2.0**-method.quantum_exp, method.clip) for g in projected_gradients])
    scale = max(map(abs, projected_gradients))
    if scale == 0.0:
        raise NumericError("all projected gradients are zero: nothing to normalise; this step is skipped")
    relative = [g / scale for g in projected_gradients]  # no overflow in the squares
    rms = math.sqrt(math.fsum(g * g for g in relative) / len(relative))
    return _padded(method, [_clipped(NORMALISED_UNIT * g / rms, method.clip) for g in relative])


def quantise_dense(method: Method, rows: int, mean: np.typing.NDArray[np.float64]) -> tuple[int, ...]:
    """Return the numbers of a dense message: ``rows``, then the mean of their gradients by every coordinate (SPEC 5.6).

    A mean that is too long keeps its direction. Raises NumericError when it is not finite.
    """
    scaled = (mean * 2.0**-method.quantum_exp).tolist()
    length = math.hypot(*scaled)  # no overflow in the squares
    if not math.isfinite(length):
        raise NumericError("a gradient is not finite: the loss overflowed; this step is skipped")
    # Rounding adds at most half to each number, so this length before it is within the bound after it
    length_max = max(0.0, math.sqrt(method.energy_max) - math.sqrt(len(scaled)) / 2)
    factor = length_max / length if length > length_max else 1.0
    return (rows, *(_clipped(factor * number, method.clip) for number in scaled))


def _padded(method: Method, measured: list[int]) -> tuple[int, ...]:
    return tuple(measured + [0] * (method.directions - len(measured)))


def _clipped(value: float, clip: int) -> int:
    return hashing.round_half_away(max(-clip, min(clip, value)))
