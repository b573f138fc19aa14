"""Runs with a published basis: short ones of the embedded model, and those that begin beside their model."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from protocol.run.manifest import Manifest, SignedManifest, checked, sign_manifest
from protocol.run.method import BasisKind
from protocol.schema import to_plain
from protocol.subspace.basis_file import BasisContent, Start, encode_basis
from protocol.subspace.directions import Basis, Int8Array
from sfnode.run.builder import BEST, MethodOptions, method_of
from sfnode.storage.stored_bases import BasisSpec
from tests.support.daemons import demo_run
from tests.support.manifests import OWNER

RANK = 8
START_RANK = 2


def basis_for(manifest: Manifest, number: int = 7) -> bytes:
    """Entries +-8, in units of 1/8: as good as a random basis of signs."""
    generator = np.random.default_rng(number)

    def signs(rows: int) -> Int8Array:
        return (16 * generator.integers(0, 2, (rows, RANK)) - 8).astype(np.int8)

    bases = tuple(Basis(u=signs(each.rows), v=signs(each.cols) if each.cols else None) for each in manifest.tensors)
    return encode_basis(RANK, BasisContent(bases=bases))


def published_demo_run(
    *,
    steps: int,
    epoch_steps: int = 1_024,
    learning_rate: float | None = None,
    directions: int = 4,
    local_steps: int = 1,
    name: str = "test",
) -> tuple[SignedManifest, bytes]:
    """The run, and the file that its manifest names. Of its canonical directions, one in a dozen has any slope.

    ``name``: with another one, other seeds and examples are drawn.
    """
    random = demo_run(steps=steps, name=name).manifest
    data = basis_for(random)
    best = BEST[BasisKind.RANDOM]
    options = MethodOptions(
        core=best.core,
        scalar=best.scalar,
        learning_rate=learning_rate or best.learning_rate,
        directions=directions,
        epoch_steps=epoch_steps,
        local_steps=local_steps,
        sides=1,
        shares=2,
    )
    basis = BasisSpec(rank=RANK, sha256=hashlib.sha256(data).hexdigest(), unit_exp=3, entry_max=8)
    method, _ = method_of(options, basis)
    plain = {**to_plain(random, as_rows=False), "method": to_plain(method, as_rows=False)}
    return sign_manifest(checked(plain), OWNER), data


def with_start(manifest: Manifest, moved: Collection[int]) -> tuple[Manifest, bytes]:
    """Return the run with a made-up start that moves the matrices of these numbers, and the file of its basis."""

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
