"""Measure every coordinate of a dense core by one forward pass a row (SPEC 5.6).

A layer that writes to the residual stream adds U C V^T x to it, and U is made of the directions that move the label
words' logits at the stream's end. Along the direct path from there, the loss of a row has the gradient ``d h^T`` by C,
in closed form: d is what the label still lacks in each contrast of the words, h = V^T x at the token read.

Shapes: N rows, L labels, r = core_rows = L - 1, k = rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from protocol.run import Manifest
from protocol.state import CoefficientLayout, view_exp
from protocol.subspace import Bases, quantise_dense
from sfnode.training.model import MatrixTerm
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import RowBatch

Int64Array = NDArray[np.int64]


def contrasts(labels: int) -> Tensor:
    """Return the contrasts between ``labels`` words, fp64[L, L - 1]: orthogonal columns of length sqrt(L) and sum zero.

    Column j sets word j + 1 against the words before it (Helmert). No contrast's curvature then exceeds that of even
    predictions, which is one.
    """
    columns = torch.zeros(labels, labels - 1, dtype=torch.float64)
    for column in range(labels - 1):
        columns[: column + 1, column] = 1.0
        columns[column + 1, column] = -(column + 1.0)
        columns[:, column] *= math.sqrt(labels / ((column + 1) * (column + 2)))
    return columns


def dense_terms(shared: SharedModel, bases: Bases, epoch: int, core: Int64Array) -> dict[str, MatrixTerm]:
    """Return what the model adds to each tensor: -2^view_exp U C V^T, in one group."""
    manifest, layout = bases.manifest, CoefficientLayout(bases.manifest)
    terms = {}
    for index, (tensor, (u, v)) in enumerate(zip(manifest.tensors, shared.bases(bases, epoch), strict=True)):
        assert v is not None, "a dense core is one of matrices"
        scaled = layout.tensor(core, index).astype(np.float64) * -(2.0 ** view_exp(manifest, index))
        m = torch.from_numpy(scaled).to(shared.loss_dtype).to(shared.device)[None]
        terms[tensor.name] = MatrixTerm(u=u[:-1].t(), v=v, m=m, up=u)
    return terms


@torch.inference_mode()
def row_gradients(
    shared: SharedModel, bases: Bases, epoch: int, core: Int64Array, rows: RowBatch, label_tokens: Sequence[int]
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Pass rows forward once; return d [N, r], h of each tensor [N, k], and the losses [N].

    The gradient of a row by a tensor's core is d h^T. All are fp32 (fp64 for an fp64 model) on the device.
    """
    manifest = bases.manifest
    terms = dense_terms(shared, bases, epoch, core)
    with shared.pass_context.hearing() as heard, shared.pass_context.carrying(terms, 1, rows.tokens.numel()):
        logits_NL = shared.label_logits(rows, label_tokens)
    labels = len(label_tokens)
    lacking_NL = logits_NL.softmax(dim=1) - functional.one_hot(rows.labels, labels).to(logits_NL.dtype)
    d_Nr = lacking_NL @ contrasts(labels).to(logits_NL)
    h = [heard[tensor.name].to(logits_NL.dtype) for tensor in manifest.tensors]
    return d_Nr, h, functional.cross_entropy(logits_NL, rows.labels, reduction="none")


def dense_message(manifest: Manifest, d_Nr: Tensor, h: list[Tensor]) -> tuple[int, ...]:
    """Return the message of these rows: their number, and the mean of their gradients in whole numbers."""
    mean = torch.cat([(d_Nr.T @ each).flatten() for each in h]) / len(d_Nr)
    return quantise_dense(manifest.method, len(d_Nr), mean.double().cpu().numpy())
