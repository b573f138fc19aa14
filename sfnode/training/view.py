"""The float view of the integer state: W = W0 - sum over epochs of 2^k U C V^T, folded exactly (SPEC 4.5).

With +-1 bases each epoch's sum is an integer matrix, exact in an fp64 product whatever the order of summation, thread
count or device (the manifest bounds it below 2^53); epochs are added in their order, exactly while their sum stays
below 2^53 too; then one multiplication by a power of two, one addition, one rounding. So equal states give equal bits
even in the floats. `evaluate` and `export` both use this fold, and therefore the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protocol.coefficients import CoefficientLayout, view_exp
from protocol.manifest import Manifest
from protocol.subspace import basis

Int64Array = NDArray[np.int64]


def fold_weights(manifest: Manifest, epochs: Mapping[int, Int64Array], base: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights that the coefficients change, by name; tensors whose coefficients are all zero are left out.

    Args:
        epochs: epoch -> int64[CoefficientLayout.size].
        base: W0 by name; every tensor of the manifest. Not modified.

    Returns:
        New tensors with dtype and device of ``base``. Cost: 2 m n r flops in fp64 on the CPU per epoch and matrix;
        16 m n bytes of scratch.
    """
    layout = CoefficientLayout(manifest)
    folded = {}
    for index, tensor in enumerate(manifest.tensors):
        moved = {epoch: layout.tensor(flat, index) for epoch, flat in epochs.items()}
        moved = {epoch: values for epoch, values in sorted(moved.items()) if values.any()}
        if moved:
            folded[tensor.name] = _fold_tensor(manifest, index, moved, base[tensor.name])
    return folded


def _fold_tensor(manifest: Manifest, index: int, moved: Mapping[int, Int64Array], base: Tensor) -> Tensor:
    total = torch.zeros(base.shape, dtype=torch.float64)
    for epoch, values in moved.items():
        found = basis(manifest.run_id, epoch, index, manifest.tensors[index], manifest.method.rank)
        core = torch.from_numpy(values).to(torch.float64)
        u = torch.from_numpy(found.u).to(torch.float64)
        if found.v is None:
            total += u @ core
        else:
            total.addmm_(u @ core, torch.from_numpy(found.v).to(torch.float64).t())
    total *= -(2.0 ** view_exp(manifest, index))
    return total.add_(base.to("cpu", torch.float64)).to(base.dtype).to(base.device)
