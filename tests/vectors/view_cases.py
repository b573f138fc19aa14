"""Vectors of the view (SPEC 4.5): weights from coefficients, exact in whole multiples of a power of two."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np
import torch

from protocol.run.manifest import Manifest, TensorKind
from protocol.state.coefficients import CoefficientLayout, view_exp
from protocol.subspace.bases import Bases, Published
from protocol.subspace.basis_file import decode_basis_untrusted
from sfnode.training.model.folding import fold_weights
from tests.vectors.basis_file_cases import EXAMPLE as SIDES, START, encoded, manifest_for
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
_OTHER = [(([[2, 2], [3, 3]]), [[5, 5]]), ([[7, 7]], None)]
_LATER = encoded(_OTHER)
_FURTHER = encoded(_OTHER, (-2, (([[1], [3]], [[-5]]), None)))
_THIRD = encoded(SIDES, (0, (([[-4], [7]], [[2]]), None)))
_IDLE = encoded(_OTHER, (-9, (([[0], [0]], [[3]]), None)))
_FILES = {"published": encoded(SIDES), "published with a start": encoded(SIDES, START)}
_STARTED = "published with a start"
_PUBLISHED = manifest_for(SIDES, _FILES["published"], 8)
_RUNS = {
    "canonical": _CANONICAL,
    "Rademacher": _RADEMACHER,
    "Rademacher, r = 2": _ODD,
    "published": _PUBLISHED,
    _STARTED: manifest_for(SIDES, _FILES[_STARTED], 8, 1),
}

Epochs: TypeAlias = Mapping[int, list[int]]


def views() -> Document:
    """views.json"""
    cases = [*_random(), *_published(), *dense_quotients(), *dense_views()]
    return document("From coefficients to weights: SPEC 4.5, 4.7", cases, manifests=texts(_RUNS | QUOTIENT_RUNS))


def _view(
    name: str,
    manifest_name: str,
    epochs: Epochs,
    renewals: Mapping[int, bytes] | None = None,
    base: int = 5,
    at: int | None = None,
) -> Case:
    manifest = _RUNS[manifest_name]
    plain = {each.name: _base(each.rows, each.cols, base) for each in manifest.tensors}
    folded = fold_weights(
        _bases(manifest_name, renewals or {}), {epoch: np.array(flat) for epoch, flat in epochs.items()}, plain, at
    )
    weights = [folded.get(each.name, plain[each.name]) for each in manifest.tensors]
    given = {
        "manifest": manifest_name,
        "base": [each.to(torch.int64).tolist() for each in plain.values()],
        "epochs": [[epoch, [str(value) for value in flat]] for epoch, flat in epochs.items()],
        "at": at,
        "basis": _FILES[manifest_name].hex() if manifest_name in _FILES else "",
        "renewals": [[epoch, data.hex()] for epoch, data in (renewals or {}).items()],
    }
    return case(name, "view", given, {"tensors": [_exact(manifest, *each) for each in enumerate(weights)]})


def _base(rows: int, cols: int, value: int) -> torch.Tensor:
    """W0: small integers, all different."""
    shape = (rows, cols) if cols else (rows,)
    return value * (1 + torch.arange(rows * max(cols, 1), dtype=torch.float64).view(shape))


def _bases(manifest_name: str, renewals: Mapping[int, bytes]) -> Bases:
    manifest = _RUNS[manifest_name]
    if manifest_name not in _FILES:
        return Bases(manifest)
    later: dict[int, Published] = {}
    for epoch, data in renewals.items():
        sha256 = hashlib.sha256(data).hexdigest()
        content = decode_basis_untrusted(manifest, data, sha256)
        later[epoch] = Published(sha256=sha256, bases=content.bases, start=content.start)
    return Bases(manifest, decode_basis_untrusted(manifest, _FILES[manifest_name]), later)


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


def _published() -> Iterator[Case]:
    flat = _ramp(_PUBLISHED, 3)
    yield _view("published: one basis for all epochs", "published", {0: flat, 1: flat, 2: _ramp(_PUBLISHED, -2)})
    yield _view("published: another basis from epoch 1 on", "published", {0: flat}, {1: _LATER})
    yield _view("published: coefficients from epoch 1 on", "published", {1: flat, 2: flat}, {1: _LATER})
    again = {1: _LATER, 2: _FILES["published"]}
    yield _view("published: the first basis again from epoch 2 on", "published", {1: flat, 2: flat}, again)
    yield _view("start: no coefficients", _STARTED, {})
    yield _view("start: and coefficients of two epochs", _STARTED, {0: flat, 1: flat})
    yield _view("start: that of a renewal is zero", _STARTED, {0: flat, 1: flat}, {1: _IDLE})
    yield from _further(flat)


def _further(flat: list[int]) -> Iterator[Case]:
    """Starts of renewals."""
    zeros, both = [0] * len(flat), {1: _FURTHER, 2: _THIRD}
    yield _view("start: a further one from epoch 1 on", _STARTED, {0: flat, 1: flat}, {1: _FURTHER})
    yield _view("start: a further one in an epoch to come", _STARTED, {0: flat}, {1: _FURTHER})
    yield _view("start: two further ones", _STARTED, {0: flat, 1: flat, 2: flat}, both)
    yield _view("start: two further ones, the second to come", _STARTED, {0: flat, 1: flat}, both)
    yield _view("start: two further ones, seen from epoch 1", _STARTED, {0: flat, 1: flat, 2: flat}, both, at=1)
    yield _view("start: two further ones, seen from an epoch without coefficients", _STARTED, {0: flat}, both, at=2)
    yield _view("start: an epoch whose coefficients are zero is none", _STARTED, {0: flat, 1: zeros}, both)
    again = {1: _FURTHER, 2: _FILES[_STARTED], 3: _FURTHER}
    yield _view("start: once, although both files come again", _STARTED, {1: flat, 2: flat, 3: flat}, again)
