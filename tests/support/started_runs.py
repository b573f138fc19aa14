"""Runs that begin beside their model: the start is made up, and moves the matrices that a test names."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from protocol.run.manifest import Manifest, checked
from protocol.schema import to_plain
from protocol.subspace.basis_file import BasisContent, Start, encode_basis
from protocol.subspace.directions import Basis
from sfnode.run.builder import MethodOptions, method_of
from sfnode.storage.stored_bases import BasisSpec

START_RANK = 2


def with_start(manifest: Manifest, moved: Collection[int]) -> tuple[Manifest, bytes]:
    """The run with a start that moves the matrices of these numbers, and the file of its basis."""

    def sides(index: int, columns: int, entry: int) -> Basis:
        tensor = manifest.tensors[index]
        u, v = (np.full((size, columns), entry, dtype=np.int8) for size in (tensor.rows, tensor.cols))
        return Basis(u=u, v=v if tensor.cols else None)

    numbers = range(len(manifest.tensors))
    products = [sides(index, START_RANK, int(index in moved)) for index in numbers]
    start = Start(exp=-8, products=tuple(each if each.v is not None else None for each in products))
    file = encode_basis(1, BasisContent(bases=tuple(sides(index, 1, 8) for index in numbers), start=start))
    method, schedule = method_of(MethodOptions(directions=4), BasisSpec.of(file))
    return checked(to_plain(replace(manifest, method=method, schedule=schedule), as_rows=False)), file
