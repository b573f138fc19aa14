"""Derive a basis from the gradient of the mean loss, by one back-propagation over the calibration examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from protocol.crypto import hashing
from protocol.run import TensorKind, TensorSpec
from protocol.subspace import Basis, signs
from sfnode.training.calibration.calibration import Calibration
from sfnode.training.calibration.entries import filled
from sfnode.training.task import Example, RowBatch, batch_of

_EXTRA_COLUMNS: Final = 8  # for the subspace iteration (Halko et al., arXiv 0909.4061, algorithm 4.4)
_ITERATIONS: Final = 3
_BALANCING_ROUNDS: Final = 50


def gradient_basis(calibration: Calibration, batches: Sequence[Sequence[Example]], rank: int) -> tuple[Basis, ...]:
    """Return bases of leading singular vectors of the mean loss's gradient over ``batches``, then of random signs.

    Half of the columns are singular vectors, and at least one. Label words are balanced first (`balanced`).

    Memory: the gradients of the tensors, and what back-propagation through one batch takes.
    """
    tensors, shift_L = calibration.tensors, _shift(calibration, batches)
    parameters = {tensor.name: calibration.shared.switch.base[tensor.name] for tensor in tensors}
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    try:
        for batch in batches:
            torch.autograd.backward(_mean_loss(calibration, batch, shift_L) / len(batches))
        gradients = {name: parameter.grad for name, parameter in parameters.items()}
    finally:
        for parameter in parameters.values():
            parameter.requires_grad_(False)
            parameter.grad = None
    return tuple(_of_gradient(index, tensor, gradients[tensor.name], rank) for index, tensor in enumerate(tensors))


def _shift(calibration: Calibration, batches: Sequence[Sequence[Example]]) -> Tensor | None:
    """Return what balances the label words over all batches; None for a task without label words."""
    shared, data = calibration.shared, calibration.data
    if not data.label_tokens:
        return None
    logits, labels = [], []
    with torch.inference_mode():
        for batch in batches:
            rows = batch_of(data, batch, 1, shared.device)
            assert isinstance(rows, RowBatch)
            logits.append(shared.label_logits(rows, data.label_tokens))
            labels.append(rows.labels)
    return balanced(torch.cat(logits), torch.cat(labels)).clone()


def balanced(logits_NL: Tensor, labels_N: Tensor) -> Tensor:
    """Return what to add to the logits so that the mean prediction has the labels' frequencies, [L].

    Without it, a gradient's leading direction is that of these frequencies, which is soon used up.
    A label that does not occur counts as half an example.
    """
    count_L = torch.bincount(labels_N, minlength=logits_NL.shape[1]).to(logits_NL.dtype)
    wanted_L = (count_L.clamp_min(0.5) / count_L.clamp_min(0.5).sum()).log()
    shift_L = torch.zeros_like(wanted_L)
    for _ in range(_BALANCING_ROUNDS):  # each round corrects the mean prediction, which the next one changes less
        shift_L = shift_L + wanted_L - (logits_NL + shift_L).softmax(dim=1).mean(dim=0).log()
    return shift_L


def _mean_loss(calibration: Calibration, batch: Sequence[Example], shift_L: Tensor | None) -> Tensor:
    if shift_L is None:
        return calibration.scores(batch).loss.mean()
    shared, data = calibration.shared, calibration.data
    rows = batch_of(data, batch, 1, shared.device)
    assert isinstance(rows, RowBatch)
    return functional.cross_entropy(shared.label_logits(rows, data.label_tokens) + shift_L, rows.labels)


def _of_gradient(index: int, tensor: TensorSpec, gradient: Tensor | None, rank: int) -> Basis:
    if gradient is None:
        return filled(index, tensor, None, None, rank)
    if tensor.kind is TensorKind.VECTOR:
        return filled(index, tensor, gradient.float()[:, None], None, rank)
    left, right = leading(gradient.float(), max(1, rank // 2))
    return filled(index, tensor, left, right, rank)


def leading(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` leading left and right singular vectors, as columns; fewer if the matrix is smaller.

    Uses subspace iteration from a fixed start, so that a large matrix takes part in products only.
    """
    count = min(count, *matrix.shape)
    width = min(count + _EXTRA_COLUMNS, *matrix.shape)
    start = signs(hashing.key_of("sfnode/calibration/1"), matrix.shape[1] * width, 0).reshape(matrix.shape[1], width)
    space = torch.from_numpy(start).to(matrix)
    # Each product with M^T M favours the directions of the largest singular values
    for _ in range(_ITERATIONS):
        space = torch.linalg.qr(matrix.T @ (matrix @ space)).Q
    small = torch.linalg.svd(matrix @ space, full_matrices=False)
    return small.U[:, :count], space @ small.Vh[:count].T
