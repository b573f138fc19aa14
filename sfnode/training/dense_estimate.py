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

from protocol.errors import OperatorError
from protocol.run import Manifest
from protocol.state import CoefficientLayout, view_exp
from protocol.subspace import Bases, quantise_dense
from sfnode.training.model import MatrixTerm
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import RowBatch

Int64Array = NDArray[np.int64]


def contrasts(labels: int) -> Tensor:
    """Return the contrasts between ``labels`` words, fp64[L, L - 1]: orthogonal columns of length sqrt(L) and sum zero.

    Column j sets word j + 1 against the words before it (Helmert). At even predictions the loss has curvature one along
    each of them.
    """
    columns = torch.zeros(labels, labels - 1, dtype=torch.float64)
    for column in range(labels - 1):
        columns[: column + 1, column] = 1.0
        columns[column + 1, column] = -(column + 1.0)
        columns[:, column] *= math.sqrt(labels / ((column + 1) * (column + 2)))
    return columns


def dense_terms(shared: SharedModel, bases: Bases, epoch: int, core: Int64Array) -> dict[str, MatrixTerm]:
    """Return what the model adds to each tensor, -2^view_exp U C V^T, in one group; nothing where the core is zero.

    The layers get U and V C^T: r columns at every token in place of k.
    """
    manifest, layout = bases.manifest, CoefficientLayout(bases.manifest)
    terms = {}
    for index, (tensor, (u, v)) in enumerate(zip(manifest.tensors, shared.bases(bases, epoch), strict=True)):
        assert v is not None, "a dense core is one of matrices"
        c = layout.tensor(core, index).astype(np.float64)
        if not c.any():
            continue
        size = float(np.linalg.norm(c))  # with a core of size one, V C^T suits every dtype as V does
        c_rk = torch.from_numpy(c / size).to(shared.loss_dtype).to(shared.device)
        m = torch.eye(len(c), dtype=shared.loss_dtype, device=shared.device) * (
            -size * 2.0 ** view_exp(manifest, index)
        )
        terms[tensor.name] = MatrixTerm(u=u[:-1].t(), v=(v.to(c_rk.dtype) @ c_rk.T).to(v.dtype), m=m[None], up=u)
    return terms


@torch.inference_mode()
def row_gradients(
    shared: SharedModel, bases: Bases, epoch: int, core: Int64Array, rows: RowBatch, label_tokens: Sequence[int]
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Pass rows forward once; return d [N, r], h of each tensor [N, k], and the losses [N].

    The gradient of a row by a tensor's core is d h^T. All are fp32 (fp64 for an fp64 model) on the device.
    OperatorError: a tensor's layer is not linear, or stored transposed.
    """
    names = [tensor.name for tensor in bases.manifest.tensors]
    terms, context = dense_terms(shared, bases, epoch, core), shared.pass_context
    with context.carrying(terms, 1, rows.tokens.numel()), context.hearing(names) as heard:
        logits_NL = shared.label_logits(rows, label_tokens)
        if missing := [name for name in names if name not in heard]:
            raise OperatorError(f"{missing[0]} cannot have a dense core: only linear layers with weights [O, I] can")
        x_NI = [heard[name] for name in names]
    labels = len(label_tokens)
    lacking_NL = logits_NL.softmax(dim=1) - functional.one_hot(rows.labels, labels).to(logits_NL.dtype)
    d_Nr = lacking_NL @ contrasts(labels).to(logits_NL)
    sides = shared.bases(bases, epoch)
    h = [x.to(logits_NL.dtype) @ v.to(logits_NL.dtype) for x, (_, v) in zip(x_NI, sides, strict=True) if v is not None]
    return d_Nr, h, functional.cross_entropy(logits_NL, rows.labels, reduction="none")


def dense_message(manifest: Manifest, d_Nr: Tensor, h: list[Tensor]) -> tuple[int, ...]:
    """Return the message of these rows: their number, and the mean of their gradients in whole numbers."""
    mean = torch.cat([(d_Nr.T @ each).flatten() for each in h]) / len(d_Nr)
    return quantise_dense(manifest.method, len(d_Nr), mean.double().cpu().numpy())
