"""Vectors of bases, cores and directions (SPEC 4.1 to 4.4, 4.6)."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from protocol.run.manifest import TensorKind, TensorSpec
from protocol.run.method import CoreKind, Method
from protocol.subspace.directions import basis, canonical_coordinates, rademacher_signs, scale_exp
from tests.support.manifests import small_manifest
from tests.vectors.basis_file_cases import basis_files
from tests.vectors.generator_cases import RUN
from tests.vectors.notation import Case, Document, case, document, key_text, signs_text

SEED = 0x669780D2E34F4B19  # the example of SPEC 2.2
_SEEDS = (SEED, 0, (1 << 64) - 1)
_DRAWN = (CoreKind.CANONICAL, CoreKind.RADEMACHER)
_RANKS = (1, 2, 4, 8, 16, 32, 64, 128)


def subspace() -> Document:
    """subspace.json"""
    cases = [*_bases(), *_cores(), *_scales(), *_directions(), *basis_files()]
    return document("Bases, cores, scales and directions: SPEC 4", cases)


def tensor(rows: int, cols: int) -> TensorSpec:
    """A tensor of this shape; cols = 0: a vector."""
    kind = TensorKind.MATRIX if cols else TensorKind.VECTOR
    return TensorSpec(name="t", kind=kind, rows=rows, cols=cols)


def _plain(spec: TensorSpec) -> dict[str, object]:
    return {"kind": spec.kind.value, "rows": spec.rows, "cols": spec.cols}


def _bases() -> list[Case]:
    chosen = [
        (1, 2, tensor(3, 2), 4),  # the example of SPEC 4.1
        (0, 0, tensor(1, 1), 1),
        (0, 0, tensor(1, 1), 128),
        (0, 1, tensor(5, 0), 8),
        (0, 1, tensor(5, 3), 8),
        (65_535, 8_191, tensor(3, 7), 2),
        (2, 3, tensor(9, 17), 16),  # U ends inside a block, V begins its own
        (2, 3, tensor(33, 0), 4),
    ]
    return [
        case(
            f"basis: epoch {epoch}, tensor {index}, {spec.rows} x {spec.cols}, r = {rank}",
            "basis",
            {"run_id": RUN.hex(), "epoch": epoch, "index": index, "tensor": _plain(spec), "rank": rank},
            _basis_texts(epoch, index, spec, rank),
        )
        for epoch, index, spec, rank in chosen
    ]


def _basis_texts(epoch: int, index: int, spec: TensorSpec, rank: int) -> dict[str, object]:
    drawn = basis(RUN, epoch, index, spec, rank)
    v = None if drawn.v is None else [signs_text(row) for row in drawn.v.tolist()]
    return {"u": [signs_text(row) for row in drawn.u.tolist()], "v": v}


def _cores() -> list[Case]:
    chosen = [(SEED, 32, direction, 9) for direction in (0, 1, 1_023)]  # nine tensors: one lane of a second block
    chosen += [(SEED, rank, 0, 3) for rank in _RANKS] + [(seed, 8, 2, 2) for seed in _SEEDS]
    rows = [(core, *row) for core, row in product(_DRAWN, dict.fromkeys(chosen))]
    return [
        case(
            f"core: {core.value}, seed {key_text(seed)}, r = {rank}, direction {direction}, {tensors} tensors",
            "cores",
            {"seed": key_text(seed), "core": core.value, "rank": rank, "direction": direction, "tensors": tensors},
            {"cores": _core_texts(core, seed, rank, direction, tensors)},
        )
        for core, seed, rank, direction, tensors in rows
    ]


def _core_texts(core: CoreKind, seed: int, rank: int, direction: int, tensors: int) -> list[list[Any]]:
    number = np.array([direction], dtype=np.uint32)
    if core is CoreKind.CANONICAL:
        row, column, sign = canonical_coordinates([seed], number, tensors, rank)
        triples = zip(row[0, 0].tolist(), column[0, 0].tolist(), sign[0, 0].tolist(), strict=True)
        return [[i, j, signs_text([s])] for i, j, s in triples]
    a, b = rademacher_signs([seed], number, tensors, rank)
    return [[signs_text(a_p), signs_text(b_p)] for a_p, b_p in zip(a[0, 0].tolist(), b[0, 0].tolist(), strict=True)]


def _method(core: CoreKind, rank: int) -> Method:
    return small_manifest(rank=rank, core=core.value, clip=1).method


def _scales() -> list[Case]:
    shapes = {TensorKind.MATRIX: tensor(2, 2), TensorKind.VECTOR: tensor(2, 0)}
    return [
        case(
            f"scale: {core.value}, r = {rank}, {kind.value}",
            "scale",
            {"core": core.value, "rank": rank, "kind": kind.value},
            {"scale_exp": scale_exp(_method(core, rank), spec)},
        )
        for core, rank, (kind, spec) in product(_DRAWN, _RANKS, shapes.items())
    ]


def _directions() -> list[Case]:
    specs = [tensor(3, 2), tensor(3, 0), tensor(2, 5)]
    return [
        case(
            f"direction: {core.value}, r = {rank}, epoch {epoch}, number {direction}",
            "direction",
            {
                "run_id": RUN.hex(),
                "epoch": epoch,
                "tensors": [_plain(spec) for spec in specs],
                "rank": rank,
                "core": core.value,
                "seed": key_text(SEED),
                "direction": direction,
            },
            {"directions": _entries(core, rank, epoch, direction, specs)},
        )
        for core, rank, epoch, direction in product(_DRAWN, (1, 4, 8), (0, 3), (0, 5))
    ]


def _entries(core: CoreKind, rank: int, epoch: int, direction: int, specs: list[TensorSpec]) -> list[dict[str, Any]]:
    """z = 2^s U a b^T V^T from the factors, in integers."""
    cores = _core_texts(core, SEED, rank, direction, len(specs))
    found = []
    for index, (spec, written) in enumerate(zip(specs, cores, strict=True)):
        drawn = basis(RUN, epoch, index, spec, rank)
        a, b = _factors(core, rank, written)
        entries = drawn.u.astype(np.int64) @ a
        if drawn.v is not None:
            entries = np.outer(entries, drawn.v.astype(np.int64) @ b)
        found.append({"scale_exp": scale_exp(_method(core, rank), spec), "entries": entries.tolist()})
    return found


def _factors(core: CoreKind, rank: int, written: list[Any]) -> tuple[Any, Any]:
    if core is CoreKind.RADEMACHER:
        a, b = ([1 if sign == "+" else -1 for sign in part] for part in written)
        return np.array(a), np.array(b)
    unit = np.eye(rank, dtype=np.int64)
    return unit[written[0]] * (1 if written[2] == "+" else -1), unit[written[1]]
