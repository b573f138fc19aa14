"""The float view of the integer state: W = W0 + starts - sum over epochs of 2^k U C V^T, folded exactly (SPEC 4.5).

Each epoch's product is an integer matrix in units of the bases, and exact in fp64 whatever the order of summation,
thread count or device, because the manifest bounds it below 2^53; epochs are added one after the other, one rounding
each (none while their sum stays below 2^53 too); then one multiplication by a power of two, one addition, one rounding
to fp32, and one more for 16 bits. So equal states give equal bits even in the floats, on CPU and CUDA.
`evaluate` and `export` both use this fold, and therefore the same weights.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from protocol.state import CoefficientLayout, view_exp
from protocol.subspace import Bases, Int8Array, Start

Int64Array: TypeAlias = NDArray[np.int64]

BLOCK_ENTRIES: Final = 1 << 17  # of a matrix folded at a time: the scratch, three times 1 MiB, stays in the cache

_GOLDEN: Final = 2_654_435_769  # 2^32 divided by the golden ratio
_DROPPED_BITS: Final = {torch.bfloat16: 16, torch.float16: 13}  # of fp32's fraction


def fold_weights(
    bases: Bases, epochs: Mapping[int, Int64Array], base: Mapping[str, Tensor], at: int | None = None
) -> dict[str, Tensor]:
    """The weights that a start or the coefficients change, by name; the others are left out.

    Args:
        bases: of the run.
        epochs: epoch -> int64[CoefficientLayout.size].
        base: W0 by name; every tensor of the manifest. Not modified. A quantised one counts with its rounded values.
        at: the epoch whose starts are in; None: the newest one (`newest_epoch`).

    Returns:
        New tensors with dtype and device of ``base``. Cost: 2 m n r flops in fp64 per epoch and matrix, on the GPU
        where ``base`` is on one, else on the CPU; scratch: 24 bytes for each of BLOCK_ENTRIES.
    """
    names = [tensor.name for tensor in bases.manifest.tensors]
    starts = starts_in(bases, epochs, at)
    moved = moved_tensors(bases, epochs, starts)
    return {
        names[index]: fold_tensor(bases, index, cores, starts, base[names[index]]) for index, cores in moved.items()
    }


def newest_epoch(epochs: Mapping[int, Int64Array]) -> int:
    """The last one with a coefficient, 0 without any: that of the view where no other is named (SPEC 4.5)."""
    return max((epoch for epoch, flat in epochs.items() if flat.any()), default=0)


def starts_in(bases: Bases, epochs: Mapping[int, Int64Array], at: int | None) -> Collection[Start]:
    """The starts in the view of the epoch ``at``, in the order in which they are added; None: as `fold_weights`."""
    return bases.starts(newest_epoch(epochs) if at is None else at).values()


def moved_tensors(
    bases: Bases, epochs: Mapping[int, Int64Array], starts: Collection[Start]
) -> dict[int, dict[int, Int64Array]]:
    """Tensor number -> epoch -> its coefficients, in ascending order of both; without what is zero.

    A tensor that starts alone move has no epochs.
    """
    layout, result = CoefficientLayout(bases.manifest), {}
    for index in range(len(bases.manifest.tensors)):
        values = {epoch: layout.tensor(flat, index) for epoch, flat in sorted(epochs.items())}
        moved = {epoch: core for epoch, core in values.items() if core.any()}
        if moved or any(start.moves(index) for start in starts):
            result[index] = moved
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """One product of a tensor's view: ``left right^T`` of a matrix, ``left`` alone (a column) of a vector; fp64.

    ``left`` = U C is exact: |U C| is at most the bound of SPEC 4.5.
    """

    left: Tensor
    right: Tensor | None


def factors_of(
    bases: Bases, index: int, moved: Mapping[int, Int64Array], starts: Collection[Start], device: torch.device
) -> list[Factors]:
    """The products whose sum, times -2^view_exp, is the tensor's change.

    Those of the starts come first; then one per epoch, or one for all epochs with the same basis where the sum of their
    coefficients is exact.
    """
    result = [_start_factors(bases, index, start, device) for start in starts if start.moves(index)]
    for epoch, core in _summed(bases, moved):
        found = bases.of(epoch, index)
        left = _wide(found.u, device) @ torch.from_numpy(core.astype(np.float64)).to(device)
        result.append(Factors(left=left, right=None if found.v is None else _wide(found.v, device)))
    return result


def _start_factors(bases: Bases, index: int, start: Start, device: torch.device) -> Factors:
    """In the units of the coefficients' products, which differ by a power of two."""
    product = start.products[index]
    assert product is not None and product.v is not None
    exp = start.view_exp(bases.manifest.method) - view_exp(bases.manifest, index)
    return Factors(left=_wide(product.u, device) * -(2.0**exp), right=_wide(product.v, device))


def _summed(bases: Bases, moved: Mapping[int, Int64Array]) -> Iterator[tuple[int, Int64Array]]:
    """An epoch with the basis, and the coefficients in it, basis after basis in the order of their first epochs."""
    for _, grouped in groupby(moved.items(), key=lambda item: bases.name(item[0])):
        cores = list(grouped)
        total = sum(np.abs(core.astype(np.float64)).max() for _, core in cores)
        if total < _sum_max(bases):
            yield cores[0][0], np.sum([core for _, core in cores], axis=0, dtype=np.int64)
        else:
            yield from cores


def _sum_max(bases: Bases) -> float:
    """The bound on coefficients below which U C V^T stays below 2^53."""
    method = bases.manifest.method
    return 2.0**53 / (method.rank * method.basis_max) ** 2


def _wide(entries: Int8Array, device: torch.device) -> Tensor:
    return torch.from_numpy(entries).to(device).to(torch.float64)


def fold_tensor(
    bases: Bases, index: int, moved: Mapping[int, Int64Array], starts: Collection[Start], base: Tensor
) -> Tensor:
    """One tensor of `fold_weights`; ``moved``: its coefficients by epoch (`moved_tensors`)."""
    where = base.device if base.device.type == "cuda" else torch.device("cpu")  # MPS has no fp64
    products = factors_of(bases, index, moved, starts, where)
    scale = -(2.0 ** view_exp(bases.manifest, index))
    plain = dequantised(base)
    result = torch.empty_like(plain)
    rows = max(1, BLOCK_ENTRIES // max(1, plain[0].numel()))
    for start in range(0, len(plain), rows):
        block = slice(start, start + rows)
        total = _product(products[0], block)
        for each in products[1:]:
            # Not one fused product and sum: where the sum of epochs is rounded, the order must be this one everywhere
            total += _product(each, block)
        total.mul_(scale).add_(plain[block].to(where))
        result[block] = _rounded(total, plain.dtype, start * plain[0].numel())
    return result


def _product(factors: Factors, block: slice) -> Tensor:
    """Some rows of a product, fp64, new."""
    return factors.left[block].clone() if factors.right is None else factors.left[block] @ factors.right.t()


def _rounded(total: Tensor, dtype: torch.dtype, first: int) -> Tensor:
    """fp64 to ``dtype``: to the nearest for fp32, and from there up or down by a fixed pattern for 16 bits.

    To the nearest, bf16 would swallow what moves a weight by less than half of its last bit: of an update of 3e-5 in
    weights of 0.03, half; of 1e-5, four fifths (measured). Up or down in proportion loses nothing on average.

    Args:
        first: the place of total's first entry in its tensor.
    """
    if dtype is torch.float64:
        return total
    wide = total.to(torch.float32)
    if dtype is torch.float32:
        return wide
    dropped = _DROPPED_BITS[dtype]
    places = torch.arange(first, first + wide.numel(), device=wide.device).view(wide.shape)
    # The fractions of multiples of the golden ratio: evenly spread over any run of places, the same on every device
    thresholds = ((places * _GOLDEN) & 0xFFFFFFFF) >> (32 - dropped)
    bits = (wide.view(torch.int32) + thresholds.to(torch.int32)) & -(1 << dropped)
    return bits.view(torch.float32).to(dtype)


def is_quantised(weight: Tensor) -> bool:
    """Whether ``weight`` is one of `quantised`: it can be multiplied with, and not be written to."""
    return type(weight) not in (Tensor, nn.Parameter)


def dequantised(weight: Tensor) -> Tensor:
    """A quantised weight's values in the dtype that it computes in; any other tensor as it is."""
    kind: Any = type(weight)
    if not is_quantised(weight):
        return weight.detach()
    if kind.dequantize is not Tensor.dequantize:
        return cast(Tensor, kind.dequantize(weight)).detach()
    unit = torch.eye(weight.shape[1], dtype=weight.dtype, device=weight.device)  # packed: multiplying is all it can do
    return functional.linear(unit, weight).t().contiguous()
