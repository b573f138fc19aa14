"""Find a start and a basis by forward passes alone: the parts of the last layers that separate the labels.

A logistic regression on the inputs of the last layers says how their weights should move (`readout`): the start. Its
length, and the prior of the labels, are chosen in the model itself on held-back examples, because later layers undo a
part of the move or add to it. If the start does not help on these examples, the run has none.

A zeroth-order estimate is as noisy as the space it searches is large. The run therefore gets only one number for each
of these layers, which scales its move, and one for each contrast between the labels, which moves all examples equally.
All other tensors get zeros.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from protocol.errors import OperatorError
from protocol.limits import RANK_MAX
from sfnode.training.calibration.calibration import Calibration, hold_back
from sfnode.training.calibration.entries import Column, as_start, packed
from sfnode.training.calibration.found_basis import NOT_FINITE, FoundBasis, Judged
from sfnode.training.calibration.readout import fit_readout, uniform_weights
from sfnode.training.calibration.residual_stream import Look, Writer, look_at, moved_logits, writers_of
from sfnode.training.estimator import EVALUATION_TOKENS
from sfnode.training.task import Example, chunks_of

LABELS_MAX: Final = RANK_MAX + 1  # the start of a layer has a column for each contrast between them
_MOVING: Final = 1 / 3  # share of the layers that move: the last ones
_EXAMPLES_MIN: Final = 8
_HELD_MAX: Final = 64
_MEASURED: Final = (1.0, 2.0)  # lengths at which the model is run
_LENGTHS: Final = tuple(0.25 * quarters for quarters in range(1, 13))  # candidates for a start; the fit has length 1
_BIAS_MIN: Final = 0.5  # in logits; the run can also learn a bias that the start hardly needs
_SHARE_MAX: Final = 4.0  # largest part of a move that later layers leave; its inverse is the smallest
_TINY: Final = 1e-12


def forward_basis(calibration: Calibration, rank: int) -> FoundBasis:
    """Return a start where one helps, and one column on each side of a few tensors; all other columns are zero.

    Args:
        calibration: its examples have labels; each is passed forward once, and some of them again.
        rank: of the run; 1 is enough.

    Raises:
        OperatorError: too few examples, or all with one label; too many labels; no layer is known to write to the
            residual stream.
    """
    examples: Sequence[Example] = calibration.data.examples
    if (labels := len(calibration.data.label_tokens)) > LABELS_MAX:
        raise OperatorError(
            f"--source forward: a start tells at most {LABELS_MAX} labels apart, and the task has {labels}; use "
            "--source trajectory"
        )
    if len(examples) < _EXAMPLES_MIN:
        raise OperatorError(f"--data: a start needs at least {_EXAMPLES_MIN} examples, and there are {len(examples)}")
    if len({example.label for example in examples}) < 2:
        raise OperatorError("--data: all calibration examples have the same label; give others, or more --examples")
    examples = [example for members in chunks_of(examples, EVALUATION_TOKENS) for example in members]  # by length
    calibration = calibration.only(examples)
    look = look_at(calibration)
    if not look.seen.logits.isfinite().all() or not all(inputs.isfinite().all() for inputs in look.seen.inputs):
        raise OperatorError(NOT_FINITE)
    moving = look.layers[-max(1, round(_MOVING * len(writers_of(calibration)))) :]
    uniform_by_layer = uniform_weights([layer.inputs for layer in moving])
    trial = _tried(calibration, look, moving, uniform_by_layer)
    # The start is a new fit, to all examples, with the settings of the trial
    readout = fit_readout(look.seen.only(torch.arange(len(examples)), slice(-len(moving), None)), (trial.ridge,))
    weights = trial.lengthened(look.weights(readout), uniform_by_layer)
    moved = {layer.index: layer.sides(look.directions, weight) for layer, weight in zip(moving, weights, strict=True)}
    is_helpful = trial.of_start.loss < trial.of_model.loss
    return replace(
        packed(calibration.tensors, _columns(look, weights), rank),
        rows=len(examples) + held_rows(len(examples)),
        start=as_start(calibration.tensors, moved) if is_helpful else None,
        of_start=trial.of_start if is_helpful else None,
        of_model=trial.of_model,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _FitTrial:
    """Result of a fit to three quarters of the examples in the model, judged on some of the others.

    Attributes:
        ridge: that cross-validation chose.
        length: of the start, as a multiple of the fit.
        prior: additional move of all examples, [K].
    """

    ridge: float
    length: float
    prior: Tensor
    of_model: Judged
    of_start: Judged

    def lengthened(self, weights: Sequence[Tensor], uniform_by_layer: Sequence[Tensor]) -> list[Tensor]:
        """Return what the start adds to the layers, from the weights of a fit, [I, K] each."""
        return _with_prior([weight_IK * self.length for weight_IK in weights], uniform_by_layer, self.prior)


def _with_prior(weights: Sequence[Tensor], uniform_by_layer: Sequence[Tensor], prior_K: Tensor) -> list[Tensor]:
    return [
        weight_IK + torch.outer(uniform_I, prior_K)
        for weight_IK, uniform_I in zip(weights, uniform_by_layer, strict=True)
    ]


def _tried(
    calibration: Calibration, look: Look, moving: Sequence[Writer], uniform_by_layer: Sequence[Tensor]
) -> _FitTrial:
    """Choose length and prior of a start by running the held-back examples in the model.

    The model runs at the fitted length, at twice that length, and at the chosen length with the prior.

    Args:
        moving: the layers that move, the last ones.
        uniform_by_layer: weights of each layer that together give one for every example (`uniform_weights`), [I] each.
    """
    layers = slice(-len(moving), None)
    kept, judging = held_back(len(calibration.data.examples))
    held = calibration.only([calibration.data.examples[number] for number in judging])
    seen = look.seen.only(torch.tensor(judging), layers)
    readout = fit_readout(look.seen.only(torch.tensor(kept), layers))
    added = [inputs_NI @ weight_IL for inputs_NI, weight_IL in zip(seen.inputs, readout.weights, strict=True)]
    alone_NL, weights = _centred(seen.logits), look.weights(readout)
    fitted_NL = alone_NL + torch.stack(added).sum(dim=0)

    def logits(weights: Sequence[Tensor]) -> Tensor:
        moves = {layer.module: (each, look.directions) for layer, each in zip(moving, weights, strict=True)}
        return _centred(moved_logits(held, moves))

    # Logits between the measured lengths come from a parabola, which saves passes
    measured = {0.0: alone_NL} | {length: logits([each * length for each in weights]) for length in _MEASURED}
    length = _length(measured, fitted_NL, seen.labels)
    found_NL = _between(measured, length)
    # The part of the fitted move that reaches the logits: the measured move projected on the fitted one
    share = float(((found_NL - alone_NL) * (fitted_NL - alone_NL)).sum())
    share /= length * max(float((fitted_NL - alone_NL).square().sum()), _TINY)
    # The prior closes the mean gap to the fitted logits. Later layers will change it by the same part
    prior_K = _lacking(fitted_NL, found_NL) @ look.contrasts / min(max(share, 1 / _SHARE_MAX), _SHARE_MAX)
    with_prior_NL = logits(_with_prior([each * length for each in weights], uniform_by_layer, prior_K))
    without, with_prior = _judge(found_NL, seen.labels), _judge(with_prior_NL, seen.labels)
    is_better = with_prior.loss < without.loss
    return _FitTrial(
        ridge=readout.ridge,
        length=length,
        prior=prior_K if is_better else torch.zeros_like(prior_K),
        of_model=_judge(alone_NL, seen.labels),
        of_start=with_prior if is_better else without,
    )


def _length(measured: Mapping[float, Tensor], fitted_NL: Tensor, labels_N: Tensor) -> float:
    """Return the length whose logits come closest to both the labels and the fit's predictions.

    The fit's predictions count because the few held-back labels alone would follow chance.
    """
    wanted_NL = (fitted_NL.softmax(dim=1) + functional.one_hot(labels_N, fitted_NL.shape[1])) / 2

    def loss(length: float) -> float:
        found_NL = _between(measured, length)
        return float(functional.cross_entropy(found_NL + _lacking(fitted_NL, found_NL), wanted_NL))

    return min(_LENGTHS, key=loss)


def _lacking(fitted_NL: Tensor, found_NL: Tensor) -> Tensor:
    """Return by how much the fitted logits exceed the found ones on average, [L]."""
    lacking_L: Tensor = (fitted_NL - found_NL).mean(dim=0)
    return lacking_L


def _judge(logits_NL: Tensor, labels_N: Tensor) -> Judged:
    is_right_N = logits_NL.argmax(dim=1) == labels_N
    loss = functional.cross_entropy(logits_NL, labels_N)
    return Judged(loss=float(loss), accuracy=float(is_right_N.float().mean()))


def _centred(logits_NL: Tensor) -> Tensor:
    """Subtract the mean over the labels, which changes no probability."""
    return logits_NL - logits_NL.mean(dim=1, keepdim=True)


def _between(measured: Mapping[float, Tensor], length: float) -> Tensor:
    """Return the logits at ``length`` on the polynomial through the measured ones (Lagrange)."""
    result = torch.zeros(())
    for at, logits_NL in measured.items():
        factor = math.prod((length - other) / (at - other) for other in measured if other != at)
        result = result + factor * logits_NL
    return result


def held_back(count: int) -> tuple[list[int], list[int]]:
    """Return the numbers of the examples to fit, three quarters, and of some of the others, which judge the fit."""
    return hold_back(range(count), most=_HELD_MAX, share=4, is_share_out=True)


def held_rows(count: int) -> int:
    """Return how many forward rows the trial of a start takes, of ``count`` examples: each length, and the prior."""
    return len(held_back(count)[1]) * (len(_MEASURED) + 1)


def _columns(look: Look, weights: Sequence[Tensor]) -> list[Column]:
    """Return one column per moving layer, cycling through the contrasts, and one bias column per contrast.

    A bias column moves all examples equally. It belongs to the other layer where it is closest in size to the rest.

    Args:
        weights: of the moving layers at their final length, [I, K] each.
    """
    contrasts, moving = look.directions.shape[1], look.layers[-len(weights) :]
    found = [
        layer.column(look.directions[:, number % contrasts], weight_IK[:, number % contrasts])
        for number, (layer, weight_IK) in enumerate(zip(moving, weights, strict=True))
    ]
    others = list(look.layers[: -len(weights)])
    typical = math.exp(sum(math.log(column.size) for column in found) / len(found))
    for contrast in range(min(contrasts, len(others))):  # a small model has few other layers
        biases = {
            layer.column(look.directions[:, contrast], uniform_weights([layer.inputs])[0] * _BIAS_MIN): layer
            for layer in others
        }
        found.append(min(biases, key=lambda each: abs(math.log(each.size / typical))))
        others.remove(biases[found[-1]])
    return found
