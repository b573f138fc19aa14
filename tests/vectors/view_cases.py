"""Vectors of the view (SPEC 4.5): weights from coefficients, exact in whole multiples of a power of two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np
import torch

from protocol.run.manifest import Manifest, TensorKind
from protocol.state.coefficients import CoefficientLayout, view_exp
from protocol.subspace.basis_file import Bases
from sfnode.training.model.folding import fold_weights
from tests.vectors.dense_cases import QUOTIENT_RUNS, dense_quotients, dense_views
from tests.vectors.notation import Case, Document, case, document
from tests.vectors.runs import run, texts

_TENSORS = [
    {"name": "a", "kind": "matrix", "rows": 3, "cols": 2},
    {"name": "b", "kind": "vector", "rows": 3, "cols": 0},
    {"name": "c", "kind": "matrix", "rows": 1, "cols": 4},
]
_SMALL = {"rank": 4, "alpha_exp": -3, "clip": 1}
_CANONICAL = run(_SMALL, tensors=_TENSORS)
_RADEMACHER = run(_SMALL | {"core": "rademacher"}, tensors=_TENSORS)
_ODD = run(_SMALL | {"core": "rademacher", "rank": 2, "alpha_exp": 0}, tensors=_TENSORS)
_RUNS = {"canonical": _CANONICAL, "Rademacher": _RADEMACHER, "Rademacher, r = 2": _ODD}

Epochs: TypeAlias = Mapping[int, list[int]]


def views() -> Document:
    """views.json"""
    cases = [*_random(), *dense_quotients(), *dense_views()]
    return document("From coefficients to weights: SPEC 4.5, 4.7", cases, manifests=texts(_RUNS | QUOTIENT_RUNS))


def _view(name: str, manifest_name: str, epochs: Epochs, base: int = 5) -> Case:
    manifest = _RUNS[manifest_name]
    plain = {each.name: _base(each.rows, each.cols, base) for each in manifest.tensors}
    folded = fold_weights(Bases(manifest), {epoch: np.array(flat) for epoch, flat in epochs.items()}, plain)
    weights = [folded.get(each.name, plain[each.name]) for each in manifest.tensors]
    given = {
        "manifest": manifest_name,
        "base": [each.to(torch.int64).tolist() for each in plain.values()],
        "epochs": [[epoch, [str(value) for value in flat]] for epoch, flat in epochs.items()],
        "basis": "",
    }
    return case(name, "view", given, {"tensors": [_exact(manifest, *each) for each in enumerate(weights)]})


def _base(rows: int, cols: int, value: int) -> torch.Tensor:
    """W0: small integers, all different."""
    shape = (rows, cols) if cols else (rows,)
    return value * (1 + torch.arange(rows * max(cols, 1), dtype=torch.float64).view(shape))


def _exact(manifest: Manifest, index: int, weights: torch.Tensor) -> dict[str, object]:
    exponent = view_exp(manifest, index)
    entries = weights * 2.0**-exponent
    assert bool((entries == entries.round()).all()) and float(entries.abs().max()) < 2.0**53
    return {"scale_exp": exponent, "entries": entries.to(torch.int64).tolist()}


def _one(manifest: Manifest, position: int, value: int) -> list[int]:
    size = CoefficientLayout(manifest).size
    return [value if place == position else 0 for place in range(size)]


def _ramp(manifest: Manifest, factor: int) -> list[int]:
    return [factor * (place % 7 - 3) for place in range(CoefficientLayout(manifest).size)]


def _random() -> Iterator[Case]:
    for name in ("canonical", "Rademacher", "Rademacher, r = 2"):
        manifest = _RUNS[name]
        yield _view(f"{name}: no coefficients", name, {})
        yield _view(f"{name}: one coefficient of a matrix", name, {0: _one(manifest, 1, 3)})
        yield _view(f"{name}: another epoch has another basis", name, {1: _one(manifest, 1, 3)})
        vector = manifest.method.rank**2
        assert manifest.tensors[1].kind is TensorKind.VECTOR
        yield _view(f"{name}: one coefficient of a vector", name, {0: _one(manifest, vector, -2)})
        both = {0: _ramp(manifest, 5), 2: _ramp(manifest, -9)}
        yield _view(f"{name}: the sum over epochs", name, both)
    large = {0: _one(_CANONICAL, 0, (1 << 48) - 1), 1: _one(_CANONICAL, 3, -(1 << 47))}
    yield _view("canonical: large coefficients", "canonical", large, base=0)
