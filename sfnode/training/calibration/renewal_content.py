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
    method = manifest.method
    bases = tuple(_within(basis, method.basis_max) for basis in found.bases)
    if not method.start_rank:
        return BasisContent(bases=bases)
    if found.start is not None and _fits(found.start, method.start_rank, method.basis_max):
        return BasisContent(bases=bases, start=_widened(found.start, method.start_rank))
    return BasisContent(bases=bases, start=_no_start(manifest))


def _within(basis: Basis, entry_max: int) -> Basis:
    u, v = (None if side is None else side.clip(-entry_max, entry_max) for side in (basis.u, basis.v))
    assert u is not None
    return Basis(u=u, v=v)


def _fits(start: Start, rank: int, entry_max: int) -> bool:
    sides = [side for each in start.products if each is not None for side in (each.u, each.v) if side is not None]
    return all(side.shape[1] <= rank and not (np.abs(side.astype(np.int16)) > entry_max).any() for side in sides)


def _widened(start: Start, rank: int) -> Start:
    """Return the same product with additional columns of zeros."""
    products = [
        None if each is None else Basis(u=_wide(each.u, rank), v=_wide(each.v, rank)) for each in start.products
    ]
    return Start(exp=start.exp, products=tuple(products))


def _wide(side: Int8Array | None, rank: int) -> Int8Array:
    assert side is not None, "a start is one of matrices"
    return np.pad(side, ((0, 0), (0, rank - side.shape[1])))


def _no_start(manifest: Manifest) -> Start:
    rank = manifest.method.start_rank
    products = [nothing(tensor, rank) if tensor.kind is TensorKind.MATRIX else None for tensor in manifest.tensors]
    return Start(exp=0, products=tuple(products))
