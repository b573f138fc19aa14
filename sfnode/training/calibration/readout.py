"""Read labels off the inputs of a model's last layers: regularised logistic regression, by kernels.

A layer that writes to the residual stream adds W x. If W moves by ``r w^T``, where r raises a label's logit by one,
that logit moves by w . x. We look for the w of all such layers together whose sum separates the labels. The problem is
convex, and forward passes give all that it needs. With fewer examples N than inputs it is small in its dual form,
w = X^T b.

Shapes: N examples, L labels, I inputs of a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

_FOLDS: Final = 4
RIDGES: Final = (1e-2, 3e-3, 1e-3, 3e-4)
_ITERATIONS: Final = 60  # of L-BFGS, which needs about 20
_UNIFORM_RIDGE: Final = 0.1  # for a kernel whose diagonal is one on average
_TINY: Final = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Logits and layer inputs of a forward pass over the examples.

    Attributes:
        logits: [N, L], of the unchanged model. labels: int64[N].
        inputs: of each layer at the token that is read, [N, I] each.
    """

    logits: Tensor
    labels: Tensor
    inputs: Sequence[Tensor]

    def only(self, chosen_N: Tensor, layers: slice) -> Passed:
        """Return some of the examples, and some of the layers."""
        inputs = [inputs_NI[chosen_N] for inputs_NI in self.inputs[layers]]
        return Passed(logits=self.logits[chosen_N], labels=self.labels[chosen_N], inputs=inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readout:
    """Fitted weights, and their quality.

    Attributes:
        weights: w of each layer for each label, [I, L] each; they sum to zero over the labels. The part that separates
            examples is orthogonal to the layer's mean input.
        ridge: the chosen one.
        accuracy: on examples left out of the fit (cross-validation), if the fit were exact in the model.
    """

    weights: tuple[Tensor, ...]
    ridge: float
    accuracy: float


def fit_readout(seen: Passed, ridges: Sequence[float] = RIDGES) -> Readout:
    """Fit the weights of all layers together, at the ridge that cross-validation prefers."""
    # With w = X^T b, a fit needs only the products X X^T of the inputs, summed over the layers
    differing = [_differing(inputs) for inputs in seen.inputs]
    scales = [_scale(inputs) * len(differing) for inputs in differing]
    kernel_NN = torch.zeros(len(seen.labels), len(seen.labels))
    for inputs_NI, scale in zip(differing, scales, strict=True):
        kernel_NN += inputs_NI @ inputs_NI.T / scale
    tried = [(*_cross_validated(kernel_NN, seen, ridge), ridge) for ridge in ridges]
    _, accuracy, ridge = min(tried)
    dual_NL, bias_L = _fit(kernel_NN, seen.logits, seen.labels, ridge)
    # Back to weights: the dual part separates examples, the bias moves all of them equally
    separating = [inputs_NI.T @ dual_NL / scale for inputs_NI, scale in zip(differing, scales, strict=True)]
    moving = [torch.outer(weight_I, bias_L) for weight_I in uniform_weights(seen.inputs)]
    weights = tuple(one + other for one, other in zip(separating, moving, strict=True))
    return Readout(weights=weights, ridge=ridge, accuracy=accuracy)


def uniform_weights(inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return weights of all layers whose sum of w . x is one for every example, by ridge regression; [I] each.

    Weights along the mean inputs would give one on average only. Single examples of OPT would deviate by a sixth: half
    a logit where a model has to be moved by three.
    """
    scales = [_scale(inputs_NI) * len(inputs) for inputs_NI in inputs]
    kernel_NN = torch.eye(len(inputs[0])) * _UNIFORM_RIDGE
    for inputs_NI, scale in zip(inputs, scales, strict=True):
        kernel_NN += inputs_NI @ inputs_NI.T / scale
    dual_N = torch.linalg.solve(kernel_NN, torch.ones(len(kernel_NN)))
    return [inputs_NI.T @ dual_N / scale for inputs_NI, scale in zip(inputs, scales, strict=True)]


def _differing(inputs_NI: Tensor) -> Tensor:
    """Return the inputs without their mean, and without their component along it."""
    mean_I = inputs_NI.mean(dim=0)
    along_I = mean_I / mean_I.norm().clamp_min(_TINY)
    centred_NI = inputs_NI - mean_I
    result: Tensor = centred_NI - (centred_NI @ along_I)[:, None] * along_I
    return result


def _scale(inputs_NI: Tensor) -> float:
    """Return the mean squared length of the inputs; kernels divided by it do not depend on a layer's scale."""
    return max(float(inputs_NI.square().sum(dim=1).mean()), _TINY)


def _cross_validated(kernel_NN: Tensor, seen: Passed, ridge: float) -> tuple[float, float]:
    """Return loss and accuracy on the examples of each fold by a fit to the others."""
    fold_N = torch.arange(len(seen.labels)) % _FOLDS
    loss, right = 0.0, 0.0
    for fold in range(_FOLDS):
        out, kept = torch.where(fold_N == fold)[0], torch.where(fold_N != fold)[0]
        dual_NL, bias_L = _fit(kernel_NN[kept][:, kept], seen.logits[kept], seen.labels[kept], ridge)
        logits = seen.logits[out] + kernel_NN[out][:, kept] @ dual_NL + bias_L
        loss += float(functional.cross_entropy(logits, seen.labels[out], reduction="sum"))
        right += float((logits.argmax(dim=1) == seen.labels[out]).sum())
    return loss / len(fold_N), right / len(fold_N)


def _fit(kernel_NN: Tensor, logits_NL: Tensor, labels_N: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Minimise cross entropy plus ridge / 2 times the squared length of all w, which is b^T K b in the dual form.

    Return dual coefficients [N, L] and bias [L]; both sum to zero over the labels.
    """
    dual_NL = torch.zeros_like(logits_NL, requires_grad=True)
    bias_L = torch.zeros(logits_NL.shape[1], requires_grad=True)
    optimiser = torch.optim.LBFGS([dual_NL, bias_L], max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        moved_NL = kernel_NN @ dual_NL
        found = functional.cross_entropy(logits_NL + moved_NL + bias_L, labels_N)
        found = found + ridge / 2 * (dual_NL * moved_NL).sum()
        torch.autograd.backward(found)
        return found

    with torch.enable_grad():
        optimiser.step(loss)  # type: ignore[no-untyped-call]
    dual, bias = dual_NL.detach(), bias_L.detach()
    return dual - dual.mean(dim=1, keepdim=True), bias - bias.mean()
