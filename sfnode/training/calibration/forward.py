"""A start and a basis from forward passes alone: in the last layers, what tells the labels apart, and nothing else.

A logistic regression on what the last layers read says how their weights should move (`readout`): the start. How
many layers, and how far, is decided in the model itself by examples that were held back, because the layers behind
undo a part or add to it.

A zeroth-order estimate is as noisy as the space it searches is large. So the run gets one number for each of these
layers, by how much its part grows, and one for each contrast between the labels that moves all examples alike. All
other tensors get zeros.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from protocol.errors import OperatorError
from protocol.limits import BASIS_ENTRY_MAX
from protocol.run import TensorSpec
from protocol.subspace import Basis
from sfnode.training.calibration.entries import as_entries, as_start, nothing
from sfnode.training.calibration.found_basis import FoundBasis
from sfnode.training.calibration.readout import fit_readout
from sfnode.training.calibration.residual_stream import Look, Writer, look_at, moved_logits, writers_of
from sfnode.training.estimator import EVALUATION_TOKENS
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, TaskData, chunks_of

_DEPTHS: Final = (1 / 5, 1 / 3)  # of the layers that are tried as the ones that move
_HELD_MAX: Final = 96
_LENGTHS: Final = tuple(0.25 * quarters for quarters in range(1, 11))  # of a start, in those of what was fitted
_BIAS_MIN: Final = 0.5  # of a logit: a bias that is hardly needed at the start can be learnt all the same
_STEPS_TO_FIT: Final = 20
_EPSILON: Final = 1 / 4  # of the fitted length
_SIZES: Final = (0.5, 4.0)  # of columns, beside that of their geometric mean: entries are multiples of 1/8, below 16
_TINY: Final = 1e-12


def forward_basis(
    shared: SharedModel, tensors: Sequence[TensorSpec], examples: Sequence[Example], data: TaskData, rank: int
) -> FoundBasis:
    """A start, and one column on each side of a few tensors; all other columns are zero.

    Args:
        examples: with labels; each is passed forward once, and some of them again.
        rank: of the run; 1 will do.

    Raises:
        OperatorError: too few layers are known to write to the residual stream, or the labels are all alike.
    """
    if len({example.label for example in examples}) < 2:
        raise OperatorError("--data: all calibration examples have the same label; give others, or more --examples")
    examples = [example for members in chunks_of(examples, EVALUATION_TOKENS) for example in members]  # by length
    look = look_at(shared, tensors, examples, data)
    if not look.seen.logits.isfinite().all() or not all(inputs.isfinite().all() for inputs in look.seen.inputs):
        raise OperatorError("the model gives numbers that are not finite on the calibration examples; try --dtype fp32")
    trial = _chosen(shared, look, examples, data, len(writers_of(shared, tensors)))
    _, length, accuracy = trial.best()
    readout = fit_readout(look.seen.only(torch.arange(len(examples)), slice(-trial.depth, None)), (trial.ridge,))
    return _packed(tensors, look, [weight * length for weight in look.weights(readout)], rank, accuracy)


@dataclass(slots=True, kw_only=True, eq=False)
class _FittedStart:
    """What the last ``depth`` layers fit to three quarters of the examples, judged by some of the others.

    Attributes:
        weights: of these layers, [I, K] each.
        measured: logits of the held-back examples at the lengths at which the model was run, [N, L] each.
    """

    depth: int
    ridge: float
    weights: list[Tensor]
    measured: dict[float, Tensor]
    labels: Tensor

    def best(self) -> tuple[float, float, float]:
        """Least loss, its length, and the accuracy there; between the lengths that were measured."""
        found = []
        for length in _LENGTHS:
            logits_NL = _between(self.measured, length)
            accuracy = float((logits_NL.argmax(dim=1) == self.labels).float().mean())
            found.append((float(functional.cross_entropy(logits_NL, self.labels)), length, accuracy))
        return min(found)


def _between(measured: Mapping[float, Tensor], length: float) -> Tensor:
    """Logits at ``length``: of the polynomial through those that were measured (Lagrange)."""
    result = torch.zeros(())
    for at, logits_NL in measured.items():
        factor = math.prod((length - other) / (at - other) for other in measured if other != at)
        result = result + factor * logits_NL
    return result


def _chosen(shared: SharedModel, look: Look, examples: Sequence[Example], data: TaskData, layers: int) -> _FittedStart:
    """The best number of layers: each is run at the length that was fitted, and the best one at twice that, too.

    ``layers``: how many write to the residual stream.
    """
    quarter_N = torch.arange(len(examples)) % 4 == 3
    held_N, kept_N = torch.where(quarter_N)[0][:_HELD_MAX], torch.where(~quarter_N)[0]
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
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class _LabelColumn:
    """One number of the run: a layer, what its input is multiplied with, [I], and the contrast that this moves."""

    layer: Writer
    weight: Tensor
    contrast: int

    @property
    def size(self) -> float:
        """Root mean square of the weights, above zero."""
        return max(float(self.weight.square().mean().sqrt()), _TINY)


def _columns(look: Look, weights: Sequence[Tensor]) -> list[_LabelColumn]:
    """One for each layer that moves, by turns of the contrasts; and for each contrast, in another layer, what moves all
    examples alike."""
    contrasts, moving = look.directions.shape[1], look.layers[-len(weights) :]
    found = [
        _LabelColumn(layer=layer, weight=weight_IK[:, number % contrasts], contrast=number % contrasts)
        for number, (layer, weight_IK) in enumerate(zip(moving, weights, strict=True))
    ]
    others = list(look.layers[: -len(weights)])
    typical = math.exp(sum(math.log(column.size) for column in found) / len(found))
    for contrast in range(min(contrasts, len(others))):  # a small model has few
        alike = [_LabelColumn(layer=layer, weight=_bias_weight(layer), contrast=contrast) for layer in others]
        found.append(min(alike, key=lambda each: abs(math.log(each.size / typical))))
        others.remove(found[-1].layer)
    return found


def _bias_weight(layer: Writer) -> Tensor:
    """What makes `_BIAS_MIN` of the layer's mean input, [I]."""
    mean_I = layer.inputs.mean(dim=0)
    weight_I: Tensor = mean_I * (_BIAS_MIN / float(mean_I.square().sum().clamp_min(_TINY)))
    return weight_I


def _packed(
    tensors: Sequence[TensorSpec], look: Look, weights: Sequence[Tensor], rank: int, accuracy: float
) -> FoundBasis:
    """Entries such that one and the same coefficient in every column is about what was fitted.

    Columns of very different sizes are drawn together (`_SIZES`), or the int8 entries of the least would be zero.

    Args:
        weights: of the last layers, as long as they are to be, [I, K] each.
    """
    columns = _columns(look, weights)
    lengths_K = look.directions.norm(dim=0) / math.sqrt(len(look.directions))
    sizes = [column.size * float(lengths_K[column.contrast]) for column in columns]
    unit = math.exp(sum(map(math.log, sizes)) / len(sizes))
    found = [nothing(tensor, rank) for tensor in tensors]
    for column, size in zip(columns, sizes, strict=True):
        direction = look.directions[:, column.contrast] / lengths_K[column.contrast]
        weight = column.weight / column.size * min(max(size / unit, _SIZES[0]), _SIZES[1])
        _put(found[column.layer.index], *((weight, direction) if column.layer.is_transposed else (direction, weight)))
    moved = {
        layer.index: (weight, look.directions) if layer.is_transposed else (look.directions, weight)
        for layer, weight in zip(look.layers[-len(weights) :], weights, strict=True)
    }
    return FoundBasis(
        bases=tuple(found),
        learning_rate=min(unit / _STEPS_TO_FIT, 1.0),
        epsilon_exp=min(max(round(math.log2(unit * _EPSILON)), -30), 0),
        accuracy=accuracy,
        start=as_start(tensors, moved),
    )


def _put(basis: Basis, left: Tensor, right: Tensor) -> None:
    """Fill the first columns."""
    assert basis.v is not None
    for side, column in ((basis.u, left), (basis.v, right)):
        side[:, 0] = as_entries(column.double().numpy(), BASIS_ENTRY_MAX)
