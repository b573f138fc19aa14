"""Runs with dense cores in a made-up basis that fits any manifest. No torch.

Messages of a made-up basis are not zeros, but its directions have nothing to do with the model: nothing is learnt.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Final

import numpy as np

from protocol.run.manifest import Manifest, SignedManifest, TensorKind, checked, sign_manifest
from protocol.run.method import ScheduleKind
from protocol.schema import to_plain
from protocol.subspace.basis_file import BasisContent, encode_basis
from protocol.subspace.directions import Basis, Int8Array
from sfnode.run.manifest_builder import dense_method_of
from sfnode.storage.stored_basis import DenseSettings
from tests.support.daemons import demo_run
from tests.support.manifests import OWNER

RANK: Final = 8
CORE_ROWS: Final = 4  # where there are no label words
_U_EXP: Final = -5
_V_EXP: Final = -7


def made_up_basis(manifest: Manifest, number: int = 7) -> bytes:
    """The file of some basis that fits a manifest with dense cores, whatever hash it names."""
    chance, method = np.random.default_rng(number), manifest.method

    def side(rows: int, columns: int) -> Int8Array:
        return chance.integers(-100, 101, (rows, columns)).astype(np.int8)

    shapes = [
        (each.cols, each.rows) if each.kind is TensorKind.TRANSPOSED else (each.rows, each.cols)
        for each in manifest.tensors
    ]
    target = side(shapes[0][0], method.core_rows)
    tensors = [
        Basis(u=side(outputs, method.core_rows), v=side(inputs, method.rank), u_exp=_U_EXP, v_exp=_V_EXP)
        for outputs, inputs in shapes
    ]
    return encode_basis(BasisContent(target=target, target_exp=_U_EXP, tensors=tuple(tensors)))


def with_basis(manifest: Manifest, *, learning_rate: float = 0.1) -> tuple[Manifest, bytes]:
    """The run with dense cores of the last matrix and its namesakes in other layers, and the file of its basis."""
    matrices = [each for each in manifest.tensors if each.kind is TensorKind.MATRIX]
    namesake = matrices[-1].name.split(".")[-2:]
    tensors = tuple(each for each in matrices if each.name.split(".")[-2:] == namesake)
    core_rows = len(manifest.task.label_words) - 1 if manifest.task.label_words else CORE_ROWS
    dense = DenseSettings(core_rows=core_rows, rank=RANK, quantum_exp=-6, energy_max=20_000, clip=127, noise_rows=128)

    def named(sha256: str) -> Manifest:
        rows = manifest.task.batch_rows
        method, schedule = dense_method_of(ScheduleKind.LINEAR, learning_rate, sha256, dense, rows)
        changed = replace(manifest, tensors=tensors, method=method, schedule=schedule)
        return checked(to_plain(changed, as_rows=False))

    data = made_up_basis(named("0" * 64))
    return named(hashlib.sha256(data).hexdigest()), data


def dense_demo_run(*, steps: int, admission: str = "open") -> tuple[SignedManifest, bytes]:
    """A run that trains the embedded model in a made-up basis, and the file that its manifest names."""
    manifest, data = with_basis(demo_run(steps=steps, name="test", admission=admission).manifest)
    return sign_manifest(manifest, OWNER), data
