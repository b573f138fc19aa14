"""Express the update of a run as low-rank factors for PEFT's LoRA, without any rounding.

A tensor's update is sum_s 2^l U_s V_s^T - 2^k sum_e U_e C_e V_e^T, where the first products are the starts. It is
low-rank already, so no decomposition is needed. One factor has the basis's small integers; the other is an integer
matrix times a power of two, split into float32 parts that add up to it exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.state import Coefficients, view_exp
from protocol.subspace import Bases

Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRankUpdate:
    """Holds a tensor's update `left @ right`, in the shape of the stored parameter.

    Attributes:
        left: float32[rows, R]; 2^l U of each start, then -2^k U C, epoch by epoch; part by part.
        right: float32[R, cols]; V^T of each; once for each part.
    """

    left: Float32Array
    right: Float32Array


def low_rank_updates(bases: Bases, coefficients: Coefficients) -> tuple[LowRankUpdate, ...]:
    """Return the exact updates of all tensors of the run, which must be matrices, all of the same rank R.

    R = (start_rank x starts + rank x epochs) x parts: one part where every |U C| <= 2^24, two below 2^48, three
    otherwise (their bound is 2^53). A run without an update has one epoch of zeros.
    """
    epochs = coefficients.epochs() or (0,)
    exact = [_exact_factors(bases, coefficients, index, epochs) for index in range(len(bases.manifest.tensors))]
    split = [float32_parts(left) for left, _ in exact]
    parts = max(map(len, split))
    return tuple(
        LowRankUpdate(
            left=np.hstack([*lefts, *[np.zeros_like(lefts[0])] * (parts - len(lefts))]),
            right=np.tile(right, (parts, 1)),
        )
        for lefts, (_, right) in zip(split, exact, strict=True)
    )


def float32_parts(values: Float64Array) -> list[Float32Array]:
    """Split `values` into float32 arrays of exactly that sum: the rounded values, what rounding lost, and so on."""
    parts = [values.astype(np.float32)]
    while (rest := values - sum(part.astype(np.float64) for part in parts)).any():
        parts.append(rest.astype(np.float32))
    return parts


def _exact_factors(
    bases: Bases, coefficients: Coefficients, index: int, epochs: tuple[int, ...]
) -> tuple[Float64Array, Float32Array]:
    """Return 2^l U, -2^k U C float64[rows, r0 starts + r epochs] and their V^T float32[r0 starts + r epochs, cols].

    Exact: |U C| < 2^53 (SPEC 4.5).
    """
    scale = 2.0 ** view_exp(bases.manifest, index)
    lefts, rights = [], []
    for start in bases.starts(epochs[-1]).values():
        product = start.products[index]
        assert product is not None and product.v is not None, "a vector has no low-rank factors"
        lefts.append(product.u.astype(np.float64) * 2.0 ** start.view_exp(bases.manifest.method))
        rights.append(product.v.T.astype(np.float32))
    for epoch in epochs:
        space = bases.of(epoch, index)
        assert space.v is not None, "a vector has no low-rank factors"
        values_rr = coefficients.layout.tensor(coefficients.flat(epoch), index).astype(np.float64)
        lefts.append(space.u.astype(np.float64) @ values_rr * -scale)
        rights.append(space.v.T.astype(np.float32))
    return np.hstack(lefts), np.vstack(rights)
