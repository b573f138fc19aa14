"""A start and a basis from forward passes alone: in the last layers, what tells the labels apart, and nothing else.

A logistic regression on what the last layers read says how their weights should move (`readout`): the start. How
many layers, and how far, is decided in the model itself by examples that were held back, because the layers behind
undo a part or add to it. Where no length helps there, the run has no start.

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
from sfnode.training.calibration.residual_stream import Look, look_at, moved_logits, writers_of
from sfnode.training.estimator import EVALUATION_TOKENS
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, TaskData, chunks_of

LABELS_MAX: Final = RANK_MAX + 1  # the start of a layer has a column for each contrast between them
_DEPTHS: Final = (1 / 5, 1 / 3)  # of the layers that are tried as the ones that move
_EXAMPLES_MIN: Final = 8
_HELD_MAX: Final = 64
_LENGTHS: Final = tuple(0.25 * quarters for quarters in range(1, 11))  # of a start, in those of what was fitted
_BIAS_MIN: Final = 0.5  # of a logit: a bias that is hardly needed at the start can be learnt all the same


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
    trial = _chosen(shared, look, examples, data, len(writers_of(shared, tensors)))
    loss, length = trial.best()
    is_helpful = loss < trial.loss_at(0.0)
    readout = fit_readout(look.seen.only(torch.arange(len(examples)), slice(-trial.depth, None)), (trial.ridge,))
    weights = [weight * length for weight in look.weights(readout)]
    moving = zip(look.layers[-trial.depth :], weights, strict=True)
    moved = {layer.index: layer.sides(look.directions, weight) for layer, weight in moving}
    return replace(
        packed(tensors, _columns(look, weights), rank),
        rows=len(examples) + trial.rows_of_trials,
        start=as_start(tensors, moved) if is_helpful else None,
        of_start=trial.at(length) if is_helpful else None,
        of_model=trial.at(0.0),
    )


@dataclass(slots=True, kw_only=True, eq=False)
class _FittedStart:
    """What the last ``depth`` layers fit to three quarters of the examples, judged by some of the others.

    Attributes:
        weights: of these layers, [I, K] each.
        measured: logits of the held-back examples at the lengths at which the model was run, [N, L] each.
        rows_of_trials: how many examples went through the model to compare the depths and lengths.
    """

    depth: int
    ridge: float
    weights: list[Tensor]
    measured: dict[float, Tensor]
    labels: Tensor
    rows_of_trials: int = 0

    def best(self) -> tuple[float, float]:
        """Least loss, and its length, between and beyond those that were measured."""
        return min((self.loss_at(each), each) for each in _LENGTHS)

    def loss_at(self, length: float) -> float:
        """At any length; zero is the model alone."""
        return float(functional.cross_entropy(_between(self.measured, length), self.labels))

    def at(self, length: float) -> Judged:
        """At any length."""
        is_right_N = _between(self.measured, length).argmax(dim=1) == self.labels
        return Judged(loss=self.loss_at(length), accuracy=float(is_right_N.float().mean()))


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
    """How many passes the trials of a start take, of ``count`` examples: at each depth, and once more."""
    return len(held_back(count)[1]) * (len(_DEPTHS) + 1)


def _chosen(shared: SharedModel, look: Look, examples: Sequence[Example], data: TaskData, layers: int) -> _FittedStart:
    """The best number of layers: each is run at the length that was fitted, and the best one at twice that, too.

    ``layers``: how many write to the residual stream.
    """
    kept_N, held_N = held_back(len(examples))
    held = [examples[number] for number in held_N.tolist()]

    def measure(trial: _FittedStart, length: float) -> None:
        moving = zip(look.layers[-trial.depth :], trial.weights, strict=True)
        moves = {layer.module: (weight_IK * length, look.directions) for layer, weight_IK in moving}
        trial.measured[length] = moved_logits(shared, moves, held, data)

    trials = []
    for depth in sorted({min(max(1, round(share * layers)), len(look.layers)) for share in _DEPTHS}):
        readout = fit_readout(look.seen.only(kept_N, slice(-depth, None)))
        trials.append(
            _FittedStart(
                depth=depth,
                ridge=readout.ridge,
                weights=look.weights(readout),
                measured={0.0: look.seen.logits[held_N]},
                labels=look.seen.labels[held_N],
            )
        )
        measure(trials[-1], 1.0)
    chosen = min(trials, key=lambda trial: trial.best()[0])
    measure(chosen, 2.0)
    chosen.rows_of_trials = len(held) * (len(trials) + 1)
    return chosen


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
