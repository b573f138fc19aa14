"""A start and a basis from forward passes alone: in the last layers, what tells the labels apart, and nothing else.

A logistic regression on what the last layers read says how their weights should move (`readout`): the start. How far,
and with what prior of the labels, is decided in the model itself by examples that were held back, because the layers
behind undo a part or add to it. Where the start does not help these, the run has none.

A zeroth-order estimate is as noisy as the space it searches is large. So the run gets one number for each of these
layers, by how much its part grows, and one for each contrast between the labels that moves all examples alike. All
other tensors get zeros.
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
from protocol.run import TensorSpec
from sfnode.training.calibration.entries import Column, as_start, packed
from sfnode.training.calibration.found_basis import NOT_FINITE, FoundBasis, Judged
from sfnode.training.calibration.readout import alike, fit_readout
from sfnode.training.calibration.residual_stream import Look, Writer, look_at, moved_logits, writers_of
from sfnode.training.estimator import EVALUATION_TOKENS
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, TaskData, chunks_of

LABELS_MAX: Final = RANK_MAX + 1  # the start of a layer has a column for each contrast between them
_MOVING: Final = 1 / 3  # of the layers, the last ones
_EXAMPLES_MIN: Final = 8
_HELD_MAX: Final = 64
_MEASURED: Final = (1.0, 2.0)  # lengths at which the model is run
_LENGTHS: Final = tuple(0.25 * quarters for quarters in range(1, 13))  # of a start, in those of what was fitted
_BIAS_MIN: Final = 0.5  # of a logit: a bias that is hardly needed at the start can be learnt all the same
_SHARE_MAX: Final = 4.0  # of what is added, that the layers behind leave; and its inverse
_TINY: Final = 1e-12


def forward_basis(
    shared: SharedModel, tensors: Sequence[TensorSpec], examples: Sequence[Example], data: TaskData, rank: int
) -> FoundBasis:
    """A start where one helps, and one column on each side of a few tensors; all other columns are zero.

    Args:
        examples: with labels; each is passed forward once, and some of them again.
        rank: of the run; 1 will do.

    Raises:
        OperatorError: too few examples, or all with one label; too many labels; no layer is known to write to the
            residual stream.
    """
    if (labels := len(data.label_tokens)) > LABELS_MAX:
        raise OperatorError(
            f"--source forward: a start tells at most {LABELS_MAX} labels apart, and the task has {labels}; use "
            "--source trajectory"
        )
    if len(examples) < _EXAMPLES_MIN:
        raise OperatorError(f"--data: a start needs at least {_EXAMPLES_MIN} examples, and there are {len(examples)}")
    if len({example.label for example in examples}) < 2:
        raise OperatorError("--data: all calibration examples have the same label; give others, or more --examples")
    examples = [example for members in chunks_of(examples, EVALUATION_TOKENS) for example in members]  # by length
    look = look_at(shared, tensors, examples, data)
    if not look.seen.logits.isfinite().all() or not all(inputs.isfinite().all() for inputs in look.seen.inputs):
        raise OperatorError(NOT_FINITE)
    moving = look.layers[-max(1, round(_MOVING * len(writers_of(shared, tensors)))) :]
    alike_by_layer = alike([layer.inputs for layer in moving])
    trial = _tried(shared, look, moving, alike_by_layer, examples, data)
    readout = fit_readout(look.seen.only(torch.arange(len(examples)), slice(-len(moving), None)), (trial.ridge,))
    weights = trial.lengthened(look.weights(readout), alike_by_layer)
    moved = {layer.index: layer.sides(look.directions, weight) for layer, weight in zip(moving, weights, strict=True)}
    is_helpful = trial.of_start.loss < trial.of_model.loss
    return replace(
        packed(tensors, _columns(look, weights), rank),
        rows=len(examples) + held_rows(len(examples)),
        start=as_start(tensors, moved) if is_helpful else None,
        of_start=trial.of_start if is_helpful else None,
        of_model=trial.of_model,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _FitTrial:
    """What a fit to three quarters of the examples became in the model, judged by some of the others.

    Attributes:
        ridge: that the fit preferred.
        length: how far to go, in what was fitted.
        prior: what moves all examples alike beyond that, [K].
    """

    ridge: float
    length: float
    prior: Tensor
    of_model: Judged
    of_start: Judged

    def lengthened(self, weights: Sequence[Tensor], alike_by_layer: Sequence[Tensor]) -> list[Tensor]:
        """Of a fit, [I, K] each, what the start adds to the layers."""
        return _with_prior([weight_IK * self.length for weight_IK in weights], alike_by_layer, self.prior)


def _with_prior(weights: Sequence[Tensor], alike_by_layer: Sequence[Tensor], prior_K: Tensor) -> list[Tensor]:
    return [
        weight_IK + torch.outer(alike_I, prior_K) for weight_IK, alike_I in zip(weights, alike_by_layer, strict=True)
    ]


def _tried(
    shared: SharedModel,
    look: Look,
    moving: Sequence[Writer],
    alike_by_layer: Sequence[Tensor],
    examples: Sequence[Example],
    data: TaskData,
) -> _FitTrial:
    """Runs the held-back examples where the fit says, twice as far, and where these say that a run should begin.

    Args:
        moving: layers, the last ones; with what makes one of every example in each, [I].
    """
    layers = slice(-len(moving), None)
    kept_N, held_N = held_back(len(examples))
    held, seen = [examples[number] for number in held_N.tolist()], look.seen.only(held_N, layers)
    readout = fit_readout(look.seen.only(kept_N, layers))
    added = [inputs_NI @ weight_IL for inputs_NI, weight_IL in zip(seen.inputs, readout.weights, strict=True)]
    alone_NL, weights = _centred(seen.logits), look.weights(readout)
    fitted_NL = alone_NL + torch.stack(added).sum(dim=0)

    def logits(weights: Sequence[Tensor]) -> Tensor:
        moves = {layer.module: (each, look.directions) for layer, each in zip(moving, weights, strict=True)}
        return _centred(moved_logits(shared, moves, held, data))

    measured = {0.0: alone_NL} | {length: logits([each * length for each in weights]) for length in _MEASURED}
    length = _length(measured, fitted_NL, seen.labels)
    found_NL = _between(measured, length)
    share = float(((found_NL - alone_NL) * (fitted_NL - alone_NL)).sum())
    share /= length * max(float((fitted_NL - alone_NL).square().sum()), _TINY)
    prior_K = _lacking(fitted_NL, found_NL) @ look.contrasts / min(max(share, 1 / _SHARE_MAX), _SHARE_MAX)
    told_NL = logits(_with_prior([each * length for each in weights], alike_by_layer, prior_K))
    without, told = _judge(found_NL, seen.labels), _judge(told_NL, seen.labels)
    is_told = told.loss < without.loss
    return _FitTrial(
        ridge=readout.ridge,
        length=length,
        prior=prior_K if is_told else torch.zeros_like(prior_K),
        of_model=_judge(alone_NL, seen.labels),
        of_start=told if is_told else without,
    )


def _length(measured: Mapping[float, Tensor], fitted_NL: Tensor, labels_N: Tensor) -> float:
    """At which the labels are told best, and as they are by the fit: few examples are held back, and what happens to be
    among them decides less by what the fit says of them."""
    wanted_NL = (fitted_NL.softmax(dim=1) + functional.one_hot(labels_N, fitted_NL.shape[1])) / 2

    def loss(length: float) -> float:
        found_NL = _between(measured, length)
        return float(functional.cross_entropy(found_NL + _lacking(fitted_NL, found_NL), wanted_NL))

    return min(_LENGTHS, key=loss)


def _lacking(fitted_NL: Tensor, found_NL: Tensor) -> Tensor:
    """What logits lack on average of those that were fitted, [L]."""
    lacking_L: Tensor = (fitted_NL - found_NL).mean(dim=0)
    return lacking_L


def _judge(logits_NL: Tensor, labels_N: Tensor) -> Judged:
    is_right_N = logits_NL.argmax(dim=1) == labels_N
    loss = functional.cross_entropy(logits_NL, labels_N)
    return Judged(loss=float(loss), accuracy=float(is_right_N.float().mean()))


def _centred(logits_NL: Tensor) -> Tensor:
    """With a sum of zero over the labels, which moves no probability."""
    return logits_NL - logits_NL.mean(dim=1, keepdim=True)


def _between(measured: Mapping[float, Tensor], length: float) -> Tensor:
    """Logits at ``length``: of the polynomial through those that were measured (Lagrange)."""
    result = torch.zeros(())
    for at, logits_NL in measured.items():
        factor = math.prod((length - other) / (at - other) for other in measured if other != at)
        result = result + factor * logits_NL
    return result


def held_back(count: int) -> tuple[Tensor, Tensor]:
    """Numbers of the examples to fit, three quarters, and of some of the others, which judge the fit.

    Examples come by length: those that judge are of all lengths.
    """
    is_left_out = torch.arange(count) % 4 == 3
    left_out = torch.where(is_left_out)[0]
    return torch.where(~is_left_out)[0], left_out[:: -(-len(left_out) // _HELD_MAX)]


def held_rows(count: int) -> int:
    """How many passes the trial of a start takes, of ``count`` examples: at each length, and with the prior."""
    return len(held_back(count)[1]) * (len(_MEASURED) + 1)


def _columns(look: Look, weights: Sequence[Tensor]) -> list[Column]:
    """One for each layer that moves, by turns of the contrasts; and for each contrast, in another layer, what moves all
    examples alike.

    Args:
        weights: of the layers that move, as long as they are to be, [I, K] each.
    """
    contrasts, moving = look.directions.shape[1], look.layers[-len(weights) :]
    found = [
        layer.column(look.directions[:, number % contrasts], weight_IK[:, number % contrasts])
        for number, (layer, weight_IK) in enumerate(zip(moving, weights, strict=True))
    ]
    others = list(look.layers[: -len(weights)])
    typical = math.exp(sum(math.log(column.size) for column in found) / len(found))
    for contrast in range(min(contrasts, len(others))):  # a small model has few
        biases = {
            layer.column(look.directions[:, contrast], alike([layer.inputs])[0] * _BIAS_MIN): layer for layer in others
        }
        found.append(min(biases, key=lambda each: abs(math.log(each.size / typical))))
        others.remove(biases[found[-1]])
    return found
