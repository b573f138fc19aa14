"""A basis from forward passes alone: in the last layers, what tells the labels apart, and nothing else.

A zeroth-order estimate is as noisy as the space it searches is large. So this one is as small as can be: two numbers
for each contrast between the labels, in layers that write to the residual stream. The output side U is what moves the
contrast's logits. The input side V is the direction of the layer's inputs by which the labels of the calibration
examples are best told apart (`readout`); for the second number it is the mean input. All other tensors get zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from protocol.errors import OperatorError
from protocol.limits import BASIS_ENTRY_MAX
from protocol.run import TensorSpec
from protocol.subspace import Basis
from sfnode.training.calibration.entries import as_entries, nothing
from sfnode.training.calibration.found_basis import FoundBasis
from sfnode.training.calibration.readout import MIDDLE, Passed, Readout, fit_readout
from sfnode.training.estimator import EVALUATION_TOKENS
from sfnode.training.model import ParameterPlace, is_norm, places
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, TaskData, chunks_of, row_batch

_BIAS_MIN: Final = 0.5  # of a logit: a bias that is hardly needed at the start can be learnt all the same
_DEPTH: Final = 2 / 3  # of the layers are tried, the last ones: the first do not know what a text says
_UNDONE: Final = 2.5  # the best length is 2 to 3 times the fitted one, for later layers undo a part (SmolLM2-135M)
_STEPS_TO_FIT: Final = 2
_EPSILON: Final = 1 / 4  # of the fitted length
_SIZES: Final = (0.5, 4.0)  # of columns, beside that of their geometric mean: entries are multiples of 1/8, below 16
_TINY: Final = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Writer:
    """A layer that writes to the residual stream, the number of its tensor in the run, and its inputs: [N, I]."""

    index: int
    is_transposed: bool
    inputs: Tensor


def forward_basis(
    shared: SharedModel, tensors: Sequence[TensorSpec], examples: Sequence[Example], data: TaskData, rank: int
) -> FoundBasis:
    """One column on each side of a few tensors; all other columns are zero.

    Args:
        examples: with labels; each is passed forward once.
        rank: of the run; 1 will do.

    Raises:
        OperatorError: too few layers are known to write to the residual stream, or the labels are all alike.
    """
    if len({example.label for example in examples}) < 2:
        raise OperatorError("--data: all calibration examples have the same label; give others, or more --examples")
    layers, seen, size = _look(shared, tensors, examples, data)
    if not seen.logits.isfinite().all() or not all(inputs.isfinite().all() for inputs in seen.inputs):
        raise OperatorError("the model gives numbers that are not finite on the calibration examples; try --dtype fp32")
    readout, chosen = _best_readout(layers, seen)
    directions_HK = _label_directions(shared, data) @ readout.contrasts * size
    return _packed(tensors, _columns(layers, chosen, readout), directions_HK.float(), rank, readout.accuracy)


def _look(
    shared: SharedModel, tensors: Sequence[TensorSpec], examples: Sequence[Example], data: TaskData
) -> tuple[list[_Writer], Passed, float]:
    """The last writing layers with their inputs; logits and labels; the mean size of the residual stream's end."""
    writers = writers_of(shared, tensors)
    contrasts = len(data.label_tokens) - 1
    if len(writers) < contrasts:
        raise OperatorError(
            f"--source forward: {contrasts + 1} labels need {contrasts} layers, and {len(writers)} of this run are "
            "known to write to the residual stream; use --source gradient"
        )
    writers = writers[-max(2 * contrasts, round(_DEPTH * len(writers))) :]
    seen: dict[int, list[Tensor]] = {index: [] for index, _ in writers}
    ends: list[Tensor] = []
    last_N = torch.empty(0)

    def keep(into: list[Tensor]) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda _module, arguments: into.append(last_of(arguments[0], last_N))

    hooks = [place.module.register_forward_pre_hook(keep(seen[index])) for index, place in writers]
    norm = final_norm(shared)
    hooks += [norm.register_forward_pre_hook(keep(ends))] if norm else []
    logits, labels = [], []
    try:
        for members in chunks_of(examples, EVALUATION_TOKENS):
            rows = row_batch(members, data.pad, shared.device)
            last_N = rows.last
            with torch.inference_mode():
                logits.append(shared.label_logits(rows, data.label_tokens).float().cpu())
            labels.append(rows.labels.cpu())
    finally:
        for hook in hooks:
            hook.remove()
    layers = [
        _Writer(index=index, is_transposed=isinstance(place.module, Conv1D), inputs=torch.cat(seen[index]))
        for index, place in writers
    ]
    size = float(torch.cat(ends).std(dim=1).mean()) if ends else 1.0
    inputs = [layer.inputs for layer in layers]
    return layers, Passed(logits=torch.cat(logits).clone(), labels=torch.cat(labels), inputs=inputs), size


def writers_of(shared: SharedModel, tensors: Sequence[TensorSpec]) -> list[tuple[int, ParameterPlace]]:
    """The linear layers that write to the residual stream, with the number of their tensor in the run.

    Their outputs have its width, and no later layer of the same module takes them in, as the output projection of an
    attention takes those of its values.
    """
    known = {name: place for name, place in places(shared.model).items() if is_linear(place)}
    hidden = shared.head.weight.shape[1]
    last = {_parent(place): place.name for place in known.values() if sizes_of(place)[1] == hidden}
    chosen = [(index, known[tensor.name]) for index, tensor in enumerate(tensors) if tensor.name in known]
    return [(index, place) for index, place in chosen if last.get(_parent(place)) == place.name]


def _parent(place: ParameterPlace) -> str:
    return place.name.rsplit(".", 2)[0]


def last_of(x: Tensor, last_N: Tensor) -> Tensor:
    """The inputs at the token that is read, fp32 on the CPU, [N, I]. x: [N, T, I], or [N T, I] as in OPT's MLP."""
    x_NTI = x.reshape(len(last_N), -1, x.shape[-1])
    return x_NTI[torch.arange(len(last_N), device=x.device), last_N].float().cpu()


def _best_readout(layers: Sequence[_Writer], seen: Passed) -> tuple[Readout, list[_Writer]]:
    """One layer for each contrast between the labels, those by which the labels are best told apart; best first.

    More layers say much the same: their numbers cannot be told from each other, and cost the run rows.
    """
    contrasts = seen.logits.shape[1] - 1
    alone = [fit_readout(replace(seen, inputs=[layer.inputs] * contrasts), MIDDLE) for layer in layers]
    loss_of = {layer.index: readout.loss for layer, readout in zip(layers, alone, strict=True)}
    chosen = sorted(layers, key=lambda layer: loss_of[layer.index])[:contrasts]
    return fit_readout(replace(seen, inputs=[layer.inputs for layer in chosen])), chosen


def _label_directions(shared: SharedModel, data: TaskData) -> Tensor:
    """What raises one label word's logit by one and lowers the others' together by as much: columns of [H, L].

    At the end of the residual stream and for a stream of size one: the least vectors that do so.
    """
    words_LH = shared.head.weight[list(data.label_tokens)].float().cpu()
    norm = final_norm(shared)
    weight = None if norm is None else norm.weight
    if isinstance(weight, Tensor):
        words_LH = words_LH * weight.float().cpu()
    result: Tensor = torch.linalg.pinv(words_LH - words_LH.mean(dim=0))
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class _LabelColumn:
    """One number of the run: a layer, what its input is multiplied with, [I], and the contrast that this moves."""

    layer: _Writer
    weight: Tensor
    contrast: int

    @property
    def size(self) -> float:
        """Root mean square of the weights, above zero."""
        return max(float(self.weight.square().mean().sqrt()), _TINY)


def _columns(layers: Sequence[_Writer], chosen: Sequence[_Writer], readout: Readout) -> list[_LabelColumn]:
    """Two columns for each contrast: what tells examples apart, and, in another layer, what moves all of them alike."""
    telling = [
        _LabelColumn(layer=layer, weight=weight * _UNDONE, contrast=contrast)
        for contrast, (layer, weight) in enumerate(zip(chosen, readout.weights, strict=True))
    ]
    others = [layer for layer in layers if layer not in chosen]
    moving = []
    for column, bias in zip(telling[: len(others)], readout.bias.tolist(), strict=False):  # a small model has few
        found = [replace(column, layer=layer, weight=_bias_weight(layer, bias)) for layer in others]
        moving.append(min(found, key=lambda each: abs(math.log(each.size / column.size))))
        others.remove(moving[-1].layer)
    return telling + moving


def _bias_weight(layer: _Writer, bias: float) -> Tensor:
    """What makes ``bias``, or at least `_BIAS_MIN`, of the layer's mean input, [I]."""
    amount = math.copysign(max(abs(bias), _BIAS_MIN), bias)
    mean_I = layer.inputs.mean(dim=0)
    weight_I: Tensor = mean_I * (amount / float(mean_I.square().sum().clamp_min(_TINY)))
    return weight_I


def _packed(
    tensors: Sequence[TensorSpec], columns: Sequence[_LabelColumn], directions_HK: Tensor, rank: int, accuracy: float
) -> FoundBasis:
    """Entries such that one and the same coefficient in every column is about what was fitted.

    Columns of very different sizes are drawn together (`_SIZES`), or the int8 entries of the least would be zero.
    """
    lengths_K = directions_HK.norm(dim=0) / math.sqrt(len(directions_HK))
    sizes = [column.size * float(lengths_K[column.contrast]) for column in columns]
    unit = math.exp(sum(map(math.log, sizes)) / len(sizes))
    found = [nothing(tensor, rank) for tensor in tensors]
    for column, size in zip(columns, sizes, strict=True):
        direction = directions_HK[:, column.contrast] / lengths_K[column.contrast]
        weight = column.weight / column.size * min(max(size / unit, _SIZES[0]), _SIZES[1])
        _put(found[column.layer.index], *((weight, direction) if column.layer.is_transposed else (direction, weight)))
    return FoundBasis(
        bases=tuple(found),
        learning_rate=min(unit / _STEPS_TO_FIT, 1.0),
        epsilon_exp=min(max(round(math.log2(unit * _EPSILON)), -30), 0),
        accuracy=accuracy,
    )


def _put(basis: Basis, left: Tensor, right: Tensor) -> None:
    """Fill the first columns."""
    assert basis.v is not None
    for side, column in ((basis.u, left), (basis.v, right)):
        side[:, 0] = as_entries(column.double().numpy(), BASIS_ENTRY_MAX)


def final_norm(shared: SharedModel) -> nn.Module | None:
    """The norm between the residual stream and the head; None where a model has none."""
    hidden = shared.head.weight.shape[1:]
    norms = [module for name, module in shared.model.named_modules() if is_norm(module) and not _is_in_a_stack(name)]
    weights = [norm.weight for norm in norms[-1:]]
    return norms[-1] if weights and isinstance(weights[0], Tensor) and weights[0].shape == hidden else None


def _is_in_a_stack(name: str) -> bool:
    return any(part.isdigit() for part in name.split("."))


def is_linear(place: ParameterPlace) -> bool:
    """Whether the parameter is the weight of a linear layer."""
    return isinstance(place.module, nn.Linear | Conv1D) and place.attribute == "weight"


def sizes_of(place: ParameterPlace) -> tuple[int, int]:
    """Inputs and outputs of a linear layer."""
    weight = place.module.weight
    assert isinstance(weight, Tensor)
    rows, cols = weight.shape
    return (rows, cols) if isinstance(place.module, Conv1D) else (cols, rows)
