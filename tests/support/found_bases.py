"""Runs with dense cores on tiny models, in the basis that is found for them."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from protocol.run.manifest import checked
from protocol.run.method import ScheduleKind
from protocol.schema import to_plain
from protocol.subspace.basis_file import Bases, encode_basis
from sfnode.run.manifest_builder import dense_method_of
from sfnode.training.calibration import FoundBasis, calibrate
from sfnode.training.model.tensor_groups import trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import TaskData
from tests.support.manifests import small_manifest


def dense_bases(shared: SharedModel, data: TaskData, rows: int = 8) -> tuple[Bases, FoundBasis]:
    """A run of 16 steps with messages of ``rows`` rows, in the basis that is found: for 32 examples or more."""
    found = calibrate(shared, trainable_tensors(shared.model), data, rows, 8)
    assert found is not None
    sha256 = hashlib.sha256(encode_basis(found.content)).hexdigest()
    method, schedule = dense_method_of(ScheduleKind.LINEAR, 0.01, sha256, found.settings, rows)
    plain = small_manifest()
    task = replace(plain.task, batch_rows=rows)
    manifest = replace(plain, tensors=found.tensors, method=method, schedule=schedule, steps=16, task=task)
    return Bases(checked(to_plain(manifest, as_rows=False)), found.content), found
