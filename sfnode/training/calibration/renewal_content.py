"""Fit the result of a calibration to the ranks and bounds of a run's files."""

from __future__ import annotations

import numpy as np

from protocol.run import Manifest, TensorKind
from protocol.subspace import Basis, BasisContent, Int8Array, Start
from sfnode.training.calibration.entries import nothing
from sfnode.training.calibration.found_basis import FoundBasis


def renewal_of(manifest: Manifest, found: FoundBasis) -> BasisContent:
    """Return the content of a renewal's file. Entries of the basis are cut to the run's bound.

    A start that is wider than the run's, or has larger entries, is left out: cut, it would be a different one. If the
    run's files hold a start and there is none, it is zero.
    """
    method, entry_max, start = manifest.method, manifest.method.basis_max, found.start
    bases = tuple(
        Basis(u=basis.u.clip(-entry_max, entry_max), v=None if basis.v is None else basis.v.clip(-entry_max, entry_max))
        for basis in found.bases
    )
    if not method.start_rank:
        return BasisContent(bases=bases)
    products = [each for each in start.products if each is not None] if start else []
    sides = [side for each in products for side in (each.u, each.v) if side is not None]
    is_fitting = all(
        side.shape[1] <= method.start_rank and not (np.abs(side.astype(np.int16)) > entry_max).any() for side in sides
    )
    if start is not None and is_fitting:
        return BasisContent(bases=bases, start=_widened(start, method.start_rank))
    zeros = [
        nothing(tensor, method.start_rank) if tensor.kind is TensorKind.MATRIX else None for tensor in manifest.tensors
    ]
    return BasisContent(bases=bases, start=Start(exp=0, products=tuple(zeros)))


def _widened(start: Start, rank: int) -> Start:
    """Return the same product with additional columns of zeros."""
    products = [
        None if each is None else Basis(u=_wide(each.u, rank), v=_wide(each.v, rank)) for each in start.products
    ]
    return Start(exp=start.exp, products=tuple(products))


def _wide(side: Int8Array | None, rank: int) -> Int8Array:
    assert side is not None, "a start is one of matrices"
    return np.pad(side, ((0, 0), (0, rank - side.shape[1])))
