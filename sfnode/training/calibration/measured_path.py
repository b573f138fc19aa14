"""Measure what later layers make of a move of a layer's output, for a U of each layer that makes it arrive.

Between a layer and the logits, other layers add to a move, turn it and undo a part of it. They do so much alike in all
rows: the mean derivative of the label words' logits by a layer's output has a cosine of 0.65 to 0.99 with a row's own,
where the direct path along the residual stream has 0.07 to 0.7 (docs/decisions/0032-all-numbers-from-one-pass.md).
The derivative takes back-propagation to activations, once, for the basis of a run. No gradient of a weight is computed,
and the nodes of a run need none of this.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor

from protocol.run import TensorSpec
from sfnode.training.dense_estimate import contrasts, last_places
from sfnode.training.model import places
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import RowBatch, TaskData, chunks_of

_TOKENS_AT_ONCE = 256  # whose activations are kept for the way back
_LEAST = 1e-3  # of a derivative's largest singular value: a U that makes less arrive would be noise
_DAMPING = 0.3  # of the same: of a contrast that arrives as little as this, half is made to arrive


def measured_sides(
    shared: SharedModel, tensors: Sequence[TensorSpec], data: TaskData, on_progress: Callable[[int], None]
) -> list[Tensor] | None:
    """Return U of each tensor, fp64[H, L - 1]; None where derivatives do not come through.

    A move of the layer's output at the last token of a prompt along column j then moves the label words' logits by the
    contrast j, in the mean over the examples of ``data``. Their labels are not looked at. Contrasts that hardly arrive,
    as those of similar words ("eight" and "nine"), would take long columns, along which steps leap: less of such
    a move arrives.
    ``on_progress`` is called with the number of examples that are done.
    """
    total: list[Tensor] = []
    done = 0
    for examples in chunks_of(data.examples, _TOKENS_AT_ONCE):
        rows = shared.batch(data, examples)
        assert isinstance(rows, RowBatch), "candidates have no label words"
        try:
            found = _derivatives(shared, tensors, rows, data.label_tokens)
        except (RuntimeError, NotImplementedError):  # quantised weights, or memory for forward passes alone
            return None
        total = [one + other for one, other in zip(total, found, strict=True)] if total else found
        done += len(examples)
        on_progress(done)
    sides = []
    for derivative_rH in total:
        if not bool(derivative_rH.isfinite().all()):
            return None
        left, sizes, right = torch.linalg.svd(derivative_rH / len(data.examples), full_matrices=False)
        if sizes[-1] <= _LEAST * sizes[0]:
            return None
        lengths = (1 + _DAMPING**2) * sizes / (sizes.square() + (_DAMPING * sizes[0]) ** 2)
        sides.append(right.T * lengths @ left.T)
    return sides


@torch.inference_mode(False)
@torch.enable_grad()
def _derivatives(
    shared: SharedModel, tensors: Sequence[TensorSpec], rows: RowBatch, label_tokens: Sequence[int]
) -> list[Tensor]:
    """Return the derivative of each contrast by each tensor's output, summed over the rows: fp64[L - 1, H]."""
    modules = [places(shared.model)[tensor.name].module for tensor in tensors]
    places_N, labels = last_places(rows), len(label_tokens)
    still_NH = torch.zeros(len(rows.tokens), tensors[0].outputs, device=shared.device, dtype=shared.dtype)
    moves = [still_NH.clone().requires_grad_() for _ in tensors]

    def moved(move_NH: Tensor, _module: object, _inputs: object, output: Any) -> Tensor:
        y_AH: Tensor = output.reshape(-1, output.shape[-1])
        return y_AH.index_add(0, places_N, move_NH).view_as(output)

    with ExitStack() as hooks:
        for module, move_NH in zip(modules, moves, strict=True):
            hooks.enter_context(module.register_forward_hook(partial(moved, move_NH)))
        hooks.enter_context(shared.pass_context.carrying({}, 1, rows.tokens.numel()))
        logits_NL = shared.label_logits(rows, label_tokens)
        arriving_r = (logits_NL @ contrasts(labels).to(logits_NL) / labels).sum(dim=0)
    by_column = [torch.autograd.grad(each, moves, retain_graph=True) for each in arriving_r]
    return [torch.stack(of_layer).sum(dim=1).cpu().double() for of_layer in zip(*by_column, strict=True)]
