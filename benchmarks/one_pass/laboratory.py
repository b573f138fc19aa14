"""What a run in the laboratory starts from: cached rows, a basis from unlabelled ones, and a pool to draw from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.learn.problems import SMOLLM2, Folders, Task, load, read
from benchmarks.one_pass.basis import CoreBasis, make_basis
from benchmarks.one_pass.layers import LateLayers
from benchmarks.one_pass.training import Scale, calibrated

CALIBRATION_ROWS = 256
_LAYERS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Laboratory:
    """One seed's laboratory.

    Attributes:
        layers, test: the rows to train on and those of the test file.
        basis, scale: from some of ``layers``' rows.
        pool: the other rows; int64[N].
    """

    layers: LateLayers
    test: LateLayers
    basis: CoreBasis
    scale: Scale
    pool: np.ndarray


def late_layers(
    folders: Folders, task: Task, chance: np.random.Generator, *, rows: int, dtype: torch.dtype
) -> tuple[LateLayers, LateLayers]:
    """Return SmolLM2's last layers over ``rows`` drawn training rows, and over the test rows."""
    data, model = read(folders, SMOLLM2, task, is_test=True), load(folders, SMOLLM2)
    torch.nn.Module.to(model, dtype)
    first = len(model.model.layers) - _LAYERS
    drawn = [data.examples[row] for row in chance.permutation(len(data.examples))[:rows]]
    tested = data.evaluation_examples[: task.test_rows]
    return LateLayers(model, drawn, data.label_tokens, first), LateLayers(model, tested, data.label_tokens, first)


def make_laboratory(
    layers: LateLayers, test: LateLayers, order: Sequence[int], seed: int, rank: int = 64
) -> Laboratory:
    """Make the basis from the first rows in ``order``, and leave the others to draw from."""
    calibration = torch.tensor(order[:CALIBRATION_ROWS])
    basis = make_basis(layers, calibration, rank=rank)
    scale = calibrated(layers, basis, calibration, seed)
    return Laboratory(layers=layers, test=test, basis=basis, scale=scale, pool=np.array(order[CALIBRATION_ROWS:]))
