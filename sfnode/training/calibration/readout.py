"""Reading labels off the inputs of a model's last layers: regularised logistic regression, by kernels.

A layer that writes to the residual stream adds W x. If W moves by ``r w^T``, with r what raises a label's logit by one,
that logit moves by w . x. So one wants the w of all such layers together whose sum tells the labels apart; it is a
convex problem, forward passes give all that it needs, and with fewer examples N than inputs it is small in its dual
form, w = X^T b.

Shapes: N examples, L labels, K = L - 1 contrasts between them, I inputs of a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

_FOLDS: Final = 4
RIDGES: Final = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4)
MIDDLE: Final = RIDGES[2:3]  # does for a comparison of layers
_ITERATIONS: Final = 60  # of L-BFGS, which needs about 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What a forward pass over the examples says.

    Attributes:
        logits: [N, L], of the model as it is. labels: int64[N].
        inputs: of each layer at the token that is read, [N, I] each.
    """

    logits: Tensor
    labels: Tensor
    inputs: Sequence[Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readout:
    """What was fitted, and what it is worth.

    Attributes:
        weights: w of each layer, [I] each, for contrast ``number modulo K`` of the layer's number. They are at right
            angles to the layer's mean input, so that each tells examples apart and moves none but by what it says.
        bias: [K], by how much each contrast moves for all examples alike.
        contrasts: [L, K], orthonormal columns that sum to zero.
        loss, accuracy: of examples that were left out of the fit (cross-validation).
    """

    weights: tuple[Tensor, ...]
    bias: Tensor
    contrasts: Tensor
    loss: float
    accuracy: float


def fit_readout(seen: Passed, ridges: Sequence[float] = RIDGES) -> Readout:
    """The weights of all layers together, at the ridge that cross-validation prefers. Layer i has contrast i mod K."""
    contrasts_LK = _contrasts(seen.logits.shape[1])
    contrasts = contrasts_LK.shape[1]
    differing = [_differing(inputs) for inputs in seen.inputs]
    scales = [_scale(inputs) * len(differing) / contrasts for inputs in differing]
    kernels_KNN = _kernels(differing, scales, contrasts)
    tried = [(*_cross_validated(kernels_KNN, seen, contrasts_LK, ridge), ridge) for ridge in ridges]
    loss, accuracy, ridge = min(tried)
    fit = _fit(kernels_KNN, seen.logits, seen.labels, contrasts_LK, ridge)
    weights = tuple(
        inputs.T @ fit.dual[number % contrasts] / scale
        for number, (inputs, scale) in enumerate(zip(differing, scales, strict=True))
    )
    return Readout(weights=weights, bias=fit.bias, contrasts=contrasts_LK, loss=loss, accuracy=accuracy)


def _differing(inputs_NI: Tensor) -> Tensor:
    """The inputs without their mean, and without what lies along it."""
    mean_I = inputs_NI.mean(dim=0)
    along_I = mean_I / mean_I.norm().clamp_min(torch.finfo(torch.float32).tiny)
    centred_NI = inputs_NI - mean_I
    result: Tensor = centred_NI - (centred_NI @ along_I)[:, None] * along_I
    return result


def _contrasts(labels: int) -> Tensor:
    """An orthonormal basis of the logits that sum to zero, [L, L - 1]: all others move no probability."""
    steps = torch.eye(labels)[:, :-1] - torch.eye(labels)[:, 1:]
    result: Tensor = torch.linalg.qr(steps).Q
    return result


def _scale(inputs_NI: Tensor) -> float:
    """Mean squared length, so that no layer counts by its size."""
    return max(float(inputs_NI.square().sum(dim=1).mean()), 1e-12)


def _kernels(inputs: Sequence[Tensor], scales: Sequence[float], contrasts: int) -> Tensor:
    """X X^T of the layers of each contrast, [K, N, N]."""
    size = len(inputs[0])
    result = torch.zeros(contrasts, size, size)
    for number, (inputs_NI, scale) in enumerate(zip(inputs, scales, strict=True)):
        result[number % contrasts] += inputs_NI @ inputs_NI.T / scale
    return result


def _cross_validated(kernels_KNN: Tensor, seen: Passed, contrasts_LK: Tensor, ridge: float) -> tuple[float, float]:
    """Loss and accuracy of the examples of each fold by a fit to the others."""
    fold_N = torch.arange(len(seen.labels)) % _FOLDS
    loss, right = 0.0, 0.0
    for fold in range(_FOLDS):
        out, kept = torch.where(fold_N == fold)[0], torch.where(fold_N != fold)[0]
        within, across = kernels_KNN[:, kept][:, :, kept], kernels_KNN[:, out][:, :, kept]
        fit = _fit(within, seen.logits[kept], seen.labels[kept], contrasts_LK, ridge)
        logits = seen.logits[out] + fit.moved(across) @ contrasts_LK.T
        loss += float(functional.cross_entropy(logits, seen.labels[out], reduction="sum"))
        right += float((logits.argmax(dim=1) == seen.labels[out]).sum())
    return loss / len(fold_N), right / len(fold_N)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """Dual coefficients [K, N] and bias [K]."""

    dual: Tensor
    bias: Tensor

    def moved(self, kernels_KMN: Tensor) -> Tensor:
        """By how much the contrasts of M examples move, [M, K]."""
        return torch.bmm(kernels_KMN, self.dual[:, :, None])[:, :, 0].T + self.bias


def _fit(kernels_KNN: Tensor, logits_NL: Tensor, labels_N: Tensor, contrasts_LK: Tensor, ridge: float) -> _Fit:
    """The fit of least cross entropy and ridge / 2 times the squared length of all w."""
    contrasts, examples = kernels_KNN.shape[:2]
    fit = _Fit(
        dual=torch.zeros(contrasts, examples, requires_grad=True), bias=torch.zeros(contrasts, requires_grad=True)
    )
    optimiser = torch.optim.LBFGS([fit.dual, fit.bias], max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        moved_NK = fit.moved(kernels_KNN)
        found = functional.cross_entropy(logits_NL + moved_NK @ contrasts_LK.T, labels_N)
        found = found + ridge / 2 * (fit.dual * (moved_NK - fit.bias).T).sum()
        torch.autograd.backward(found)
        return found

    with torch.enable_grad():
        optimiser.step(loss)  # type: ignore[no-untyped-call]
    return _Fit(dual=fit.dual.detach(), bias=fit.bias.detach())
