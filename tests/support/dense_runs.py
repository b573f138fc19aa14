"""Runs with dense cores on tiny models: a calibrated basis, and the manifest that fits it."""

from __future__ import annotations

from dataclasses import replace

from protocol.run.manifest import checked
from protocol.schema import to_plain
from protocol.subspace.bases import Bases
from protocol.subspace.basis_file import encode_basis
from sfnode.run.builder import MethodOptions, dense_method_of
from sfnode.storage.stored_bases import BasisSpec
from sfnode.training.calibration import Calibration
from sfnode.training.calibration.dense import dense_basis
from sfnode.training.calibration.found_basis import FoundBasis
from tests.support.manifests import small_manifest


def dense_bases(calibration: Calibration, rows: int = 8) -> tuple[Bases, FoundBasis]:
    """A run with messages of ``rows`` rows, in the basis that the calibration finds."""
    found = dense_basis(calibration, rows)
    assert found.dense is not None
    spec = BasisSpec.of(encode_basis(found.rank, found.content))
    method, schedule = dense_method_of(MethodOptions(learning_rate=0.01), spec, found.dense, rows)
    plain, words = small_manifest(), tuple(f" {number}" for number in range(found.dense.core_rows + 1))
    manifest = replace(
        plain,
        tensors=found.tensors,
        method=method,
        schedule=schedule,
        steps=16,
        task=replace(plain.task, batch_rows=rows, label_words=words),
    )
    return Bases(checked(to_plain(manifest, as_rows=False)), found.content), found
