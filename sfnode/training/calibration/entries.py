"""Convert directions in floats to the int8 entries of a published basis (SPEC 4.6)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protocol.crypto import hashing
from protocol.limits import BASIS_ENTRY_MAX
from protocol.run import TensorKind, TensorSpec
from protocol.subspace import Basis, Int8Array, Start, basis_file, signs
from sfnode.storage import stored_bases
from sfnode.training.calibration.found_basis import FoundBasis

_LARGEST: Final = BASIS_ENTRY_MAX / (1 << stored_bases.UNIT_EXP)  # largest entry, as a number instead of units
_TINY: Final = 1e-30
_STEPS_TO_FIT: Final = 160  # of one author until a column has its full length; 256 authors at once just work
_EPSILON: Final = 1 / 4  # of that length
_SIZES: Final = (0.5, 4.0)  # of columns, relative to their geometric mean: entries are multiples of 1/8, below 16
ENTRY_MAX: Final = 31  # almost four times the unit: larger entries are cut, and the bound of SPEC 4.5 stays loose


def filled(index: int, tensor: TensorSpec, left: Tensor | None, right: Tensor | None, rank: int) -> Basis:
    """Return both sides as int8 in columns of unit variance, completed to ``rank`` columns by random signs."""
    u = _side(index, 0, tensor.rows, left, rank)
    return Basis(u=u, v=_side(index, 1, tensor.cols, right, rank) if tensor.kind is TensorKind.MATRIX else None)


def _side(index: int, side: int, size: int, columns: Tensor | None, rank: int) -> Int8Array:
    drawn = signs(
        hashing.key_of("sfnode/calibration/1", hashing.u32(index), hashing.u32(side)), size * rank, 0
    ).reshape(size, rank)
    entries = drawn.astype(np.float64)
    if columns is not None:
        lengths = columns.norm(dim=0).clamp_min(torch.finfo(torch.float32).tiny)
        known = (columns / lengths * math.sqrt(size))[:, :rank].cpu().double().numpy()
        entries[:, : known.shape[1]] = known
    return as_entries(entries, ENTRY_MAX)


def as_entries(values: NDArray[np.float64], entry_max: int) -> Int8Array:
    """Round numbers to int8 multiples of the unit, and cut them at ``entry_max`` units."""
    entries: Int8Array = np.clip(np.rint(values * (1 << stored_bases.UNIT_EXP)), -entry_max, entry_max).astype(np.int8)
    return entries


def as_start(tensors: Sequence[TensorSpec], moved: Mapping[int, tuple[Tensor, Tensor]]) -> Start:
    """Return the start that moves each tensor by ``left right^T``.

    ``moved`` maps a tensor's number to left [O, K] and right [I, K]. Each column's right side has entries up to the
    largest int8 entry; its left side carries the product's size.
    """
    peaks = {index: left.abs().amax(dim=0) * right.abs().amax(dim=0) for index, (left, right) in moved.items()}
    largest = max(float(peak_K.max()) for peak_K in peaks.values())
    # The least power of two with which two largest entries reach the largest product
    exp = min(max(math.ceil(math.log2(max(largest, _TINY) / _LARGEST**2)), basis_file.START_EXP_MIN), 0)
    rank = len(next(iter(peaks.values())))
    products: list[Basis | None] = []
    for index, tensor in enumerate(tensors):
        if tensor.kind is not TensorKind.MATRIX:
            products.append(None)
        elif index not in moved:
            products.append(nothing(tensor, rank))
        else:
            left, right = (side / side.abs().amax(dim=0).clamp_min(_TINY) * _LARGEST for side in moved[index])
            left = left * (peaks[index] / (2.0**exp * _LARGEST**2))
            u, v = (as_entries(side.double().numpy(), BASIS_ENTRY_MAX) for side in (left, right))
            products.append(Basis(u=u, v=v))
    return Start(exp=exp, products=tuple(products))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Column:
    """One coefficient of the run: the value one moves the tensor number ``index`` by ``left right^T``, [O] and [I]."""

    index: int
    left: Tensor
    right: Tensor

    @property
    def size(self) -> float:
        """Return the root mean square of the move, above zero."""
        return max(float(self.left.square().mean().sqrt() * self.right.square().mean().sqrt()), _TINY)


def packed(tensors: Sequence[TensorSpec], columns: Sequence[Column], rank: int) -> FoundBasis:
    """Return a basis of at most one column per side and tensor, with the learning rate and epsilon that suit it.

    Equal coefficients move every column by about its full length. Sizes of columns stay within `_SIZES` of their
    geometric mean, since the int8 entries of the smallest would otherwise be zero.
    """
    unit = math.exp(sum(math.log(column.size) for column in columns) / len(columns))
    found = [nothing(tensor, rank) for tensor in tensors]
    for column in columns:
        grown = min(max(column.size / unit, _SIZES[0]), _SIZES[1])
        basis, left = found[column.index], _of_size_one(column.left)
        assert basis.v is not None
        for side, values in ((basis.u, left), (basis.v, _of_size_one(column.right) * grown)):
            side[:, 0] = as_entries(values.double().numpy(), BASIS_ENTRY_MAX)
    return FoundBasis(
        bases=tuple(found),
        learning_rate=min(unit / _STEPS_TO_FIT, 1.0),
        epsilon_exp=min(max(round(math.log2(unit * _EPSILON)), -30), 0),
    )


def _of_size_one(column: Tensor) -> Tensor:
    return column / column.square().mean().sqrt().clamp_min(_TINY)


def nothing(tensor: TensorSpec, rank: int) -> Basis:
    """Return the basis of a tensor that is not searched: zeros, which cost a step next to nothing."""
    zeros = np.zeros((tensor.rows, rank), dtype=np.int8)
    is_matrix = tensor.kind is TensorKind.MATRIX
    return Basis(u=zeros, v=np.zeros((tensor.cols, rank), dtype=np.int8) if is_matrix else None)
