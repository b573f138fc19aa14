"""Bases and directions: what a seed means (SPEC 3, 4). Pure integers, equal on every machine."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.crypto import RunId, hashing
from protocol.run import CoreKind, Manifest, Method, TensorKind, TensorSpec
from protocol.subspace.philox import blocks, signs, signs_of_words

Int8Array = NDArray[np.int8]

_LANES = 8  # 16-bit lanes in a Philox block: one canonical core each
_STREAM_CANONICAL = 1
_STREAM_RADEMACHER = 2
_STREAM_BASIS_U = 0
_STREAM_BASIS_V = 1


@dataclass(frozen=True, slots=True)
class Basis:
    """One tensor's subspace in one epoch: ``u`` int8[rows, r], ``v`` int8[cols, r] (None for a vector).

    A dense core has ``u`` int8[outputs, core_rows] and ``v`` int8[inputs, r], with exponents of their own: they stand
    for 2^u_exp u and 2^v_exp v. Outputs and inputs are rows and cols, or in a transposed tensor cols and rows.
    """

    u: Int8Array
    v: Int8Array | None
    u_exp: int = 0
    v_exp: int = 0

    @property
    def exp(self) -> int:
        """Return the exponent of a product of both sides."""
        return self.u_exp + self.v_exp


@dataclass(frozen=True, slots=True)
class DirectionFactors:
    """Cores of D directions for P tensors: ``a`` and ``b`` int8[D, P, r]; a vector uses ``a`` alone."""

    a: Int8Array
    b: Int8Array

    def first(self, directions: int) -> "DirectionFactors":
        """Return the cores of the first ``directions`` directions."""
        return DirectionFactors(a=self.a[:directions], b=self.b[:directions])


def basis(run_id: RunId, epoch: int, tensor_index: int, tensor: TensorSpec, rank: int) -> Basis:
    """Generate the random +-1 basis of ``tensor`` in ``epoch`` (SPEC 4.1). Cost: one Philox block per 128 entries."""
    key = hashing.key_of("sfnode/basis/1", run_id, hashing.u32(epoch), hashing.u32(tensor_index))
    u = signs(key, tensor.rows * rank, _STREAM_BASIS_U).reshape(tensor.rows, rank)
    if tensor.kind is TensorKind.VECTOR:
        return Basis(u=u, v=None)
    return Basis(u=u, v=signs(key, tensor.cols * rank, _STREAM_BASIS_V).reshape(tensor.cols, rank))


def scale_exp(method: Method, tensor: TensorSpec) -> int:
    """Return s for which z = 2^s U a b^T V^T (a vector: 2^s U a) has about unit variance per entry (SPEC 4.4).

    Canonical cores give +-1 entries: s = 0, and so do the coordinates of a dense one. A Rademacher core sums r^2 signs
    of variance r^2: s = -log2 r, exactly unit. A vector's sums r signs of variance r: s = -ceil(log2(r) / 2), unit, or
    one half where r is not a power of 4.
    """
    if method.core is not CoreKind.RADEMACHER:
        return 0
    log2_rank = method.rank.bit_length() - 1
    return -log2_rank if tensor.kind is TensorKind.MATRIX else -((log2_rank + 1) // 2)


def canonical_coordinates(
    seeds: Sequence[int], directions: NDArray[np.uint32], tensors: int, rank: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return row i, column j and sign s of every canonical core (SPEC 4.3), each int64[seeds, directions, tensors].

    i and j are in 0 ... r-1, s in {-1, +1}. ``directions``: their numbers within a round.
    """
    words_ndbw = blocks(seeds, directions, -(-tensors // _LANES), _STREAM_CANONICAL)
    lanes = np.ascontiguousarray(words_ndbw, dtype="<u4").view("<u2")
    lanes_ndp = lanes.reshape(*lanes.shape[:2], -1)[..., :tensors].astype(np.int64)
    # A lane holds the row in its lowest log2 r bits, the column in the next log2 r, the sign in bit 15.
    row = lanes_ndp & (rank - 1)
    sign = lanes_ndp >> 15
    sign *= -2
    sign += 1
    column = lanes_ndp
    column >>= rank.bit_length() - 1
    column &= rank - 1
    return row, column, sign


def rademacher_signs(
    seeds: Sequence[int], directions: NDArray[np.uint32], tensors: int, rank: int
) -> tuple[Int8Array, Int8Array]:
    """Return a and b of every Rademacher core (SPEC 4.3): int8[n, d, P, r] each.

    One tensor takes 2r bits of the direction's stream: first a, then b.
    """
    bits = 2 * rank * tensors
    words_ndbw = blocks(seeds, directions, -(-bits // 128), _STREAM_RADEMACHER)
    flat = words_ndbw.reshape(*words_ndbw.shape[:2], -1)
    both = signs_of_words(flat, bits).reshape(len(seeds), len(directions), tensors, 2, rank)
    return both[..., 0, :], both[..., 1, :]


def direction_factors(manifest: Manifest, seed: int, local_step: int = 0) -> DirectionFactors:
    """Return the cores of one local step's D directions for the estimator (canonical ones as signed unit vectors)."""
    method, tensors = manifest.method, len(manifest.tensors)
    first = local_step * method.directions
    numbers = np.arange(first, first + method.directions, dtype=np.uint32)  # of the directions within the round
    if method.core is CoreKind.RADEMACHER:
        a, b = rademacher_signs([seed], numbers, tensors, method.rank)
        return DirectionFactors(a=a[0], b=b[0])
    row, column, sign = canonical_coordinates([seed], numbers, tensors, method.rank)
    unit = np.eye(method.rank, dtype=np.int8)
    return DirectionFactors(a=unit[row[0]] * sign[0].astype(np.int8)[..., None], b=unit[column[0]])
