"""Compute the float view of the integer state: W = W0 - sum over epochs of 2^k U C V^T (SPEC 4.5).

Equal states give equal bits even in the floats, on CPU and CUDA:
- Each epoch's product is an integer matrix in units of the bases. The manifest bounds it below 2^53, so it is exact in
  fp64, independent of summation order, thread count and device.
- Epochs are added one after the other with one rounding each (none while their sum stays below 2^53 too).
- One multiplication by a power of two, one addition and one rounding to fp32 follow, and one more rounding for 16 bits.
`evaluate` and `export` both use this fold, and therefore the same weights.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from protocol.run import TensorKind
from protocol.state import CoefficientLayout, Int64Array, view_exp
from protocol.subspace import Bases, Int8Array

BLOCK_ENTRIES = 1 << 17  # entries of a matrix folded at a time: the scratch, 3 x 1 MiB, stays in the cache

Product = tuple[Tensor, Tensor | None]  # fp64: the first times the second transposed; of a vector a column alone

_GOLDEN = 2_654_435_769  # 2^32 divided by the golden ratio
_DROPPED_BITS = {torch.bfloat16: 16, torch.float16: 13}  # of fp32's fraction


def fold_weights(bases: Bases, epochs: Mapping[int, Int64Array], base: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights that the coefficients change, by name, as new tensors like those of ``base``.

    ``base``: W0 by name; every tensor of the manifest, and not modified. Quantised ones count with rounded values.

    Cost: 2 m n r flops in fp64 per epoch and matrix, on the GPU if ``base`` is on a CUDA device, else on the CPU;
    scratch: 24 bytes for each of BLOCK_ENTRIES.
    """
    names = [tensor.name for tensor in bases.manifest.tensors]
    moved = moved_tensors(bases, epochs)
    return {names[index]: fold_tensor(bases, index, cores, base[names[index]]) for index, cores in moved.items()}


def moved_tensors(bases: Bases, epochs: Mapping[int, Int64Array]) -> dict[int, dict[int, Int64Array]]:
    """Return tensor number -> epoch -> its coefficients, in ascending order of both, without what is zero."""
    layout, result = CoefficientLayout(bases.manifest), {}
    for index in range(len(bases.manifest.tensors)):
        values = {epoch: layout.tensor(flat, index) for epoch, flat in sorted(epochs.items())}
        if moved := {epoch: core for epoch, core in values.items() if core.any()}:
            result[index] = moved
    return result


def factors_of(bases: Bases, index: int, moved: Mapping[int, Int64Array], device: torch.device) -> list[Product]:
    """Return the products whose sum, times -2^view_exp, is the tensor's change.

    One per epoch, or one for all epochs with the same basis where the sum of their coefficients is exact. Each
    product is exact, too: |U C| is at most the bound of SPEC 4.5.
    """
    is_transposed = bases.manifest.tensors[index].kind is TensorKind.TRANSPOSED
    result: list[Product] = []
    for epoch, core in _summed(bases, moved):
        found = bases.of(epoch, index)
        product = _wide(found.u, device) @ torch.from_numpy(core.astype(np.float64)).to(device)
        product *= 2.0**found.exp
        if found.v is None:
            result.append((product, None))
        else:
            v = _wide(found.v, device)
            result.append((v, product) if is_transposed else (product, v))
    return result


def _summed(bases: Bases, moved: Mapping[int, Int64Array]) -> Iterator[tuple[int, Int64Array]]:
    """Yield an epoch and coefficients in its basis: summed over successive epochs with it if exact, else each."""
    sum_max = 2.0**53 / bases.manifest.method.product_max  # so that |U C V^T| stays below 2^53
    for _, grouped in groupby(moved.items(), key=lambda item: bases.name(item[0])):
        cores = list(grouped)
        total = sum(np.abs(core.astype(np.float64)).max() for _, core in cores)
        if total < sum_max:
            yield cores[0][0], np.sum([core for _, core in cores], axis=0, dtype=np.int64)
        else:
            yield from cores


def _wide(entries: Int8Array, device: torch.device) -> Tensor:
    return torch.from_numpy(entries).to(device).to(torch.float64)


def fold_tensor(bases: Bases, index: int, moved: Mapping[int, Int64Array], base: Tensor) -> Tensor:
    """Fold one tensor (`fold_weights`); ``moved`` holds its coefficients by epoch (`moved_tensors`)."""
    where = base.device if base.device.type == "cuda" else torch.device("cpu")  # MPS has no fp64
    products = factors_of(bases, index, moved, where)
    scale = -(2.0 ** view_exp(bases.manifest, index))
    plain = dequantised(base)
    result = torch.empty_like(plain)
    rows = max(1, BLOCK_ENTRIES // max(1, plain[0].numel()))
    for start in range(0, len(plain), rows):
        block = slice(start, start + rows)
        total = _rows_of(products[0], block)
        for each in products[1:]:
            # not one fused product and sum: where the sum of epochs is rounded, all nodes must add in this order
            total += _rows_of(each, block)
        total.mul_(scale).add_(plain[block].to(where))
        result[block] = _rounded(total, plain.dtype, start * plain[0].numel())
    return result


def _rows_of(product: Product, block: slice) -> Tensor:
    """Return some rows of a product as a new tensor, fp64."""
    left, right = product
    return left[block].clone() if right is None else left[block] @ right.t()


def _rounded(total: Tensor, dtype: torch.dtype, first: int) -> Tensor:
    """Round fp64 to ``dtype``: to the nearest for fp32, and from there up or down by a fixed pattern for 16 bits.

    Rounding to the nearest, bf16 would lose changes of less than half of a weight's last bit: half of an update of 3e-5
    to weights of 0.03, and four fifths of one of 1e-5 (measured). Rounding up in proportion to the dropped bits loses
    nothing on average. ``first``: index of the first entry of ``total`` in its tensor.
    """
    if dtype is torch.float64:
        return total
    wide = total.to(torch.float32)
    if dtype is torch.float32:
        return wide
    dropped = _DROPPED_BITS[dtype]
    places = torch.arange(first, first + wide.numel(), device=wide.device).view(wide.shape)
    # Thresholds are the fractions of multiples of the golden ratio: evenly spread over any run of places, and the same
    # on every device. Adding one carries into the kept bits if the dropped bits are large enough.
    thresholds = ((places * _GOLDEN) & 0xFFFFFFFF) >> (32 - dropped)
    bits = (wide.view(torch.int32) + thresholds.to(torch.int32)) & -(1 << dropped)
    return bits.view(torch.float32).to(dtype)


def is_quantised(weight: Tensor) -> bool:
    """Return whether ``weight`` is one of `quantised`: it can be multiplied with, but not written to."""
    return type(weight) not in (Tensor, nn.Parameter)


def is_packed(weight: Tensor) -> bool:
    """Return whether ``weight`` is quantised in a form that can only be multiplied with, in its own dtype (int4)."""
    return is_quantised(weight) and cast(Any, type(weight)).dequantize is Tensor.dequantize


def dequantised(weight: Tensor) -> Tensor:
    """Return a quantised weight's values in the dtype that it computes in; any other tensor unchanged."""
    kind: Any = type(weight)
    if not is_quantised(weight):
        return weight.detach()
    if not is_packed(weight):
        return cast(Tensor, kind.dequantize(weight)).detach()
    unit = torch.eye(weight.shape[1], dtype=weight.dtype, device=weight.device)  # packed weights can only multiply
    return nn.functional.linear(unit, weight).t().contiguous()
