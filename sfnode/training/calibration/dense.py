"""Find the basis of a dense core by forward passes over examples whose labels are not looked at.

Layers of the last third that write to the residual stream get the core. U moves each contrast of the label words by its
length at the end of the stream. V has the leading directions of a layer's inputs at the token read, scaled to variance
one. Then the largest eigenvalue of all layers' V^T x together is the largest curvature of the loss at even predictions
(elsewhere it is at most half the number of labels times as much), and its inverse the rate of a Newton step. The unit
and the bound of a message come from labels that are drawn evenly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from protocol.errors import OperatorError
from protocol.limits import BASIS_ENTRY_MAX, DENSE_NUMBERS_MAX, RANK_MAX
from protocol.subspace import Basis, Int8Array, words
from sfnode.storage import DenseSettings
from sfnode.training.calibration.calibration import Calibration
from sfnode.training.calibration.found_basis import NOT_FINITE, FoundBasis
from sfnode.training.calibration.residual_stream import (
    Writer,
    is_stored_transposed,
    look_at,
    writers_of,
)
from sfnode.training.dense_estimate import contrasts
from sfnode.training.estimator import EVALUATION_TOKENS
from sfnode.training.model import ParameterPlace
from sfnode.training.task import chunks_of

RATE: Final = 3.0  # in steps of Newton's method: docs/decisions/0032-all-numbers-from-one-pass.md has what others do
EXAMPLES: Final = 256
EXAMPLES_MIN: Final = 32  # fewer say too little about the inputs to come
_MOVING: Final = 1 / 3  # share of the writing layers that get a core: the last ones
_RANK: Final = 64
_RANK_MIN: Final = 8
_RIDGE: Final = 0.003  # of the sum of all eigenvalues but the first, which is that of the mean
_LEVELS_OF_RMS: Final = 16  # the unit of a message's numbers is at most their rms / 16
_LENGTH_MAX: Final = 2.0  # of a message, in medians


def dense_rank(calibration: Calibration) -> int:
    """Return the rank of a dense core for this model and task; 0 where there can be none."""
    labels, writers = len(calibration.data.label_tokens), _moving(calibration)
    if not 1 < labels <= RANK_MAX + 1 or not writers:
        return 0
    if any(is_stored_transposed(place.module) for _, place in writers):
        return 0
    rank = _RANK
    while len(writers) * rank * (labels - 1) >= DENSE_NUMBERS_MAX:
        rank //= 2
    return rank if rank >= _RANK_MIN else 0


def dense_basis(calibration: Calibration, batch_rows: int) -> FoundBasis:
    """Find the basis; each example is passed forward once. ``batch_rows``: examples of a message.

    OperatorError: the model gives numbers that are not finite.
    """
    rank = dense_rank(calibration)
    by_length = [example for members in chunks_of(calibration.data.examples, EVALUATION_TOKENS) for example in members]
    look = look_at(calibration.only(by_length))
    moving = look.layers[-len(_moving(calibration)) :]
    if not look.seen.logits.isfinite().all() or not all(layer.inputs.isfinite().all() for layer in moving):
        raise OperatorError(NOT_FINITE)
    # The look has the directions of other contrasts; both kinds span all changes that move a probability
    u_Hr = look.directions.double() @ look.contrasts.double().T @ contrasts(look.seen.logits.shape[1])
    u, u_exp = _entries(u_Hr)
    sides = [_entries(_leading(layer, rank)) for layer in moving]
    h = [
        layer.inputs.double() @ (torch.from_numpy(v).double() * 2.0**exp)
        for layer, (v, exp) in zip(moving, sides, strict=True)
    ]
    # The largest eigenvalue of the second moment of all layers' V^T x together
    curvature = float(torch.linalg.matrix_norm(torch.cat(h, dim=1), ord=2)) ** 2 / len(by_length)
    unit_exp, energy_max = _scale_of_messages(look.seen.logits.double(), h, batch_rows)
    return FoundBasis(
        bases=tuple(Basis(u=u, v=v, u_exp=u_exp, v_exp=exp) for v, exp in sides),
        rows=len(by_length),
        tensors=tuple(calibration.tensors[layer.index] for layer in moving),
        learning_rate=RATE / curvature,
        dense=DenseSettings(core_rows=u_Hr.shape[1], quantum_exp=unit_exp, energy_max=energy_max),
    )


def _moving(calibration: Calibration) -> Sequence[tuple[int, ParameterPlace]]:
    writers = writers_of(calibration)
    return writers[-max(1, round(_MOVING * len(writers))) :]


def _leading(layer: Writer, rank: int) -> Tensor:
    """Return the leading eigenvectors of the uncentred second moment of inputs, each over sqrt(eigenvalue + ridge).

    The first is the mean and carries the prior of the labels. fp64[I, rank], zeros beyond the inputs and the examples:
    directions that no example has been seen to take would get the greatest lengths.
    """
    x_NI = layer.inputs.double()
    known = min(rank, len(x_NI))
    values, vectors = torch.linalg.eigh(x_NI.T @ x_NI / len(x_NI))
    values, vectors = values.flip(0)[:known].clamp_min(0), vectors.flip(1)[:, :known]
    scaled = vectors / (values + _RIDGE * values[1:].sum()).sqrt()
    return functional.pad(scaled, (0, rank - scaled.shape[1]))


def _entries(side: Tensor) -> tuple[Int8Array, int]:
    """Return int8 entries and the least exponent at which they hold the side: it is entries x 2^exponent."""
    largest = max(float(side.abs().max()), 1e-12)
    exp = math.ceil(math.log2(largest / BASIS_ENTRY_MAX))
    return (side * 2.0**-exp).round().numpy().astype(np.int8), exp


def _scale_of_messages(logits_NL: Tensor, h: Sequence[Tensor], batch_rows: int) -> tuple[int, int]:
    """Return the exponent of a message's unit, and the largest sum of squares of its numbers."""
    count, labels = logits_NL.shape
    drawn_N = torch.from_numpy((words(0, count) % labels).astype(np.int64))
    d_Nr = (logits_NL.softmax(dim=1) - functional.one_hot(drawn_N, labels)) @ contrasts(labels)
    apart = max(1, count // batch_rows)  # the rows are sorted by length: each message takes some of all lengths
    messages = torch.stack(
        [
            torch.cat([(d_Nr[first::apart].T @ each[first::apart]).flatten() for each in h]) / len(d_Nr[first::apart])
            for first in range(apart)
        ]
    )
    rms = float(messages.square().mean().sqrt())
    unit_exp = math.floor(math.log2(max(rms, 1e-12) / _LEVELS_OF_RMS))
    length = _LENGTH_MAX * float(messages.norm(dim=1).median())
    return unit_exp, math.ceil((length * 2.0**-unit_exp) ** 2)
