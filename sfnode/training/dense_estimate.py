"""Measure every coordinate of a dense core by one forward pass a row (SPEC 5.6).

A layer that writes to the residual stream adds U C V^T x to it. As long as its move arrives as U was made for, the loss
has the gradient ``d h^T`` by C at each token that the task reads, in closed form: d is the gradient by the contrasts
between the label words, or by the end of the stream along the target; h = V^T x. The tokens are the last one of a
prompt, or those that predict a candidate's tokens.

Shapes: N examples, P tokens that are read, L labels, H width of the stream, r = core_rows, k = rank.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from protocol.errors import OperatorError
from protocol.run import TensorKind, TensorSpec
from protocol.state import CoefficientLayout, Int64Array, view_exp
from protocol.subspace import Bases
from sfnode.training.model import MatrixTerm
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import CandidateBatch, RowBatch, scoring


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


def dense_terms(shared: SharedModel, bases: Bases, core: Int64Array) -> dict[str, MatrixTerm]:
    """Return what the model adds to each tensor, -2^view_exp U C V^T, in one group; nothing where the core is zero.

    The layers get U and V C^T: r columns at every token in place of k.
    """
    manifest, layout = bases.manifest, CoefficientLayout(bases.manifest)
    terms = {}
    for index, (tensor, (u, v)) in enumerate(zip(manifest.tensors, shared.bases(bases, 0), strict=True)):
        assert v is not None, "a dense core is one of matrices"
        c = layout.tensor(core, index).astype(np.float64)
        if not c.any():
            continue
        c_rk = torch.from_numpy(c * -(2.0 ** view_exp(manifest, index))).to(shared.loss_dtype).to(shared.device)
        terms[tensor.name] = dense_term(tensor, u, v, c_rk)
    return terms


def dense_term(tensor: TensorSpec, u: Tensor, v: Tensor, c_rk: Tensor) -> MatrixTerm:
    """Return the term U C V^T of a tensor. u: `with_spare_row` of U; v: [I, k]."""
    size = c_rk.norm()  # with a core of size one, V C^T suits every dtype as V does
    narrow = (v.to(c_rk.dtype) @ (c_rk / size).T).to(v.dtype)
    m = torch.eye(len(c_rk), dtype=c_rk.dtype, device=c_rk.device)[None] * size
    if tensor.kind is TensorKind.TRANSPOSED:
        return MatrixTerm(u=narrow, v=u[:-1].t(), m=m)
    return MatrixTerm(u=u[:-1].t(), v=narrow, m=m, up=u)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Holds what one forward pass gives: d at each token that is read, the layers' inputs there, and the losses.

    Attributes:
        d: [P, r]. Summed over an example's tokens, ``d x^T`` is the gradient of its loss by what a layer adds along U.
        inputs: of each layer, [P, I].
        loss: [N].
    """

    d: Tensor
    inputs: list[Tensor]
    loss: Tensor


@torch.inference_mode()
def hear(
    shared: SharedModel,
    names: Sequence[str],
    terms: Mapping[str, MatrixTerm],
    rows: RowBatch | CandidateBatch,
    label_tokens: Sequence[int],
    target_Hr: Tensor,
) -> Heard:
    """Pass rows forward once with these terms, and listen to the layers whose weights are ``names``.

    OperatorError: one of them is not linear. With label words their contrasts are moved, and ``target_Hr`` is not used.
    """
    context = shared.pass_context
    positions_P = rows.positions if isinstance(rows, CandidateBatch) else last_places(rows)
    if isinstance(rows, CandidateBatch):
        target_Hr = target_Hr * shared.norm_gain()[:, None]  # of a stream of size one; before the block: another pass
    with context.carrying(terms, 1, rows.tokens.numel()), context.hearing(names, positions_P):
        if isinstance(rows, RowBatch):
            logits_NL = shared.label_logits(rows, label_tokens)
            labels = len(label_tokens)
            lacking_NL = logits_NL.softmax(dim=1) - torch.nn.functional.one_hot(rows.labels, labels).to(logits_NL.dtype)
            d_Pr = lacking_NL @ contrasts(labels).to(logits_NL)
            loss_N = torch.nn.functional.cross_entropy(logits_NL, rows.labels, reduction="none")
        else:
            d_Pr, loss_N = scoring.candidate_residuals(shared.hidden(rows), shared.scored_head, rows, target_Hr)
        return Heard(d=d_Pr, inputs=context.heard(names), loss=loss_N)


def last_places(rows: RowBatch) -> Tensor:
    """Return where the last token of each prompt is in N x T, int64[N]."""
    return torch.arange(len(rows.last), device=rows.last.device) * rows.tokens.shape[1] + rows.last


@torch.inference_mode()
def row_gradients(
    shared: SharedModel, bases: Bases, core: Int64Array, rows: RowBatch | CandidateBatch, label_tokens: Sequence[int]
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Pass rows forward once; return d [P, r], h of each tensor [P, k], and the losses [N].

    The gradient by a tensor's core, summed over all examples, is d^T h. All are fp32 (fp64 for an fp64 model) on the
    device. OperatorError: the core does not fit the label words, or a tensor's layer is not linear.
    """
    manifest = bases.manifest
    if label_tokens and manifest.method.core_rows != len(label_tokens) - 1:
        raise OperatorError(
            f"the run's core has {manifest.method.core_rows} rows, and {len(label_tokens)} label words that one token "
            f"sets apart need {len(label_tokens) - 1}: is this the run's model?"
        )
    sides = shared.bases(bases, 0)
    dtype, names = shared.loss_dtype, [tensor.name for tensor in manifest.tensors]
    terms = dense_terms(shared, bases, core)
    heard = hear(shared, names, terms, rows, label_tokens, shared.target(bases))
    h = [x.to(dtype) @ v.to(dtype) for x, (_, v) in zip(heard.inputs, sides, strict=True) if v is not None]
    return heard.d, h, heard.loss


def mean_gradient(d_Pr: Tensor, h: list[Tensor], examples: int) -> np.typing.NDArray[np.float64]:
    """Return the mean of the gradients of ``examples`` examples by all coordinates, in the order of a message."""
    mean = torch.cat([(d_Pr.T @ each).flatten() for each in h]) / examples
    return mean.cpu().double().numpy()  # MPS has no fp64
