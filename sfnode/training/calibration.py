"""A published basis from a look at the model and some examples, which the run's owner takes before the run (`sfnode
basis make`), and again when the model has moved (`sfnode basis renew`).

A zeroth-order estimate is as noisy as the space it searches is large. Two sources make that space small:

* the gradient of the mean loss on the calibration examples (one back-propagation): its leading singular vectors;
* forward passes alone: a linear layer's gradient is a sum of (sensitivity of the output) x (input)^T, so the leading
  directions of its inputs are one side, and the label words' embeddings, carried back through the weights, the other.

Whoever reads the basis learns something of the examples behind it: docs/learning.md says what. No digest and no other
node depends on how a basis was made, so floats and libraries may do here what they like.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from protocol import limits
from protocol.crypto import key_of, u32
from protocol.errors import OperatorError
from protocol.run import TaskSpec, TensorKind, TensorSpec
from protocol.state import Coefficients
from protocol.subspace import Bases, Basis, Int8Array, signs
from sfnode.model_files import ModelFolder
from sfnode.storage import UNIT_EXP, locate
from sfnode.training.describe import chosen_groups
from sfnode.training.model import (
    ParameterPlace,
    check_model,
    check_positions,
    choose_device,
    choose_dtype,
    fold_weights,
    is_norm,
    load_causal_lm,
    load_tokenizer,
    places,
    trainable_tensors,
)
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, TaskData, batch_of, read_task, row_batch
from sfnode.worker_protocol import CalibrationOptions, DeviceOptions, Source

ENTRY_MAX: Final = 31  # almost four times the unit: larger entries are cut, and the bound of SPEC 4.5 stays loose
_EXTRA_COLUMNS: Final = 8  # of the subspace iteration (Halko et al., arXiv 0909.4061, algorithm 4.4)
_ITERATIONS: Final = 3
_BATCH_ROWS: Final = 16  # back-propagated through at once: as many as a step's, so it fits where training fits
_FORWARD_EXAMPLES_MAX: Final = 64  # one pass; their tokens by the hundred say enough of a layer's inputs


def calibrate(
    options: CalibrationOptions, *, folder: ModelFolder, trainable: str, task: TaskSpec, rank: int
) -> tuple[Basis, ...]:
    """The basis of every tensor of the groups ``trainable``, in the order in which a manifest lists them.

    ``rank``: columns of each side, a power of two: the run's.

    Raises:
        OperatorError: rank, model, data, device or groups cannot be used, or there is not enough memory.
    """
    if rank & (rank - 1) or rank > limits.RANK_MAX:
        raise OperatorError(f"--rank {rank}: must be a power of two, at most {limits.RANK_MAX}")
    check_positions(folder.path, task.max_tokens)
    data = read_task(load_tokenizer(folder.path), task, locate(options.data), None)
    loaded = _load(folder.path, options.devices)
    tensors = trainable_tensors(loaded, chosen_groups(trainable))
    return _basis_of(SharedModel(loaded), tensors, data, options, rank)


def recalibrate(
    options: CalibrationOptions, bases: Bases, coefficients: Coefficients, folder: ModelFolder
) -> tuple[Basis, ...]:
    """The basis of every tensor of a run, taken at the weights that it has reached, and within its bounds.

    ``folder``: where the run's model is.

    Raises:
        OperatorError: as `calibrate`; or the run's basis is in other units than those of `sfnode basis make`.
    """
    manifest = bases.manifest
    if manifest.method.basis_unit_exp != UNIT_EXP:
        raise OperatorError(f"the run's basis has units of 2^-{manifest.method.basis_unit_exp}, not 2^-{UNIT_EXP}")
    check_model(folder.path, manifest.model)
    data = read_task(load_tokenizer(folder.path), manifest.task, locate(options.data), None)
    shared = SharedModel(_load(folder.path, options.devices))
    epochs = {epoch: coefficients.flat(epoch) for epoch in coefficients.epochs()}
    for name, weight in fold_weights(bases, epochs, shared.switch.base).items():
        shared.switch.base[name].copy_(weight)
    found = _basis_of(shared, manifest.tensors, data, options, manifest.method.rank)
    return tuple(_within(basis, manifest.method.basis_max) for basis in found)


def _load(folder: Path, devices: DeviceOptions) -> PreTrainedModel:
    return load_causal_lm(folder, choose_device(devices.device), choose_dtype(devices.dtype))


def _basis_of(
    shared: SharedModel, tensors: Sequence[TensorSpec], data: TaskData, options: CalibrationOptions, rank: int
) -> tuple[Basis, ...]:
    examples = data.examples[: options.examples]
    if options.source is Source.FORWARD:
        if not data.label_tokens:
            raise OperatorError("--source forward needs label words of one token each; use --source gradient")
        return forward_basis(shared, tensors, examples[:_FORWARD_EXAMPLES_MAX], data, rank)
    batches = [examples[start : start + _BATCH_ROWS] for start in range(0, len(examples), _BATCH_ROWS)]
    return gradient_basis(shared, tensors, batches, data, rank)


def _within(basis: Basis, entry_max: int) -> Basis:
    u, v = (None if side is None else side.clip(-entry_max, entry_max) for side in (basis.u, basis.v))
    assert u is not None
    return Basis(u=u, v=v)


def gradient_basis(
    shared: SharedModel, tensors: Sequence[TensorSpec], batches: Sequence[Sequence[Example]], data: TaskData, rank: int
) -> tuple[Basis, ...]:
    """Half of the columns: leading singular vectors of the mean loss's gradient over ``batches``; then random signs.

    Memory: the gradients of ``tensors``, and what back-propagation through one batch takes.
    """
    parameters = {tensor.name: shared.switch.base[tensor.name] for tensor in tensors}
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    try:
        for batch in batches:
            rows = batch_of(data, batch, 1, shared.device)
            torch.autograd.backward(shared.scores(rows, data.label_tokens).loss.mean() / len(batches))
        gradients = {name: parameter.grad for name, parameter in parameters.items()}
    finally:
        for parameter in parameters.values():
            parameter.requires_grad_(False)
            parameter.grad = None
    return tuple(_of_gradient(index, tensor, gradients[tensor.name], rank) for index, tensor in enumerate(tensors))


def _of_gradient(index: int, tensor: TensorSpec, gradient: Tensor | None, rank: int) -> Basis:
    if gradient is None:
        return _filled(index, tensor, None, None, rank)
    if tensor.kind is TensorKind.VECTOR:
        return _filled(index, tensor, gradient.float()[:, None], None, rank)
    left, right = leading(gradient.float(), max(1, rank // 2))
    return _filled(index, tensor, left, right, rank)


def forward_basis(
    shared: SharedModel, tensors: Sequence[TensorSpec], batch: Sequence[Example], data: TaskData, rank: int
) -> tuple[Basis, ...]:
    """Input sides: leading directions of each layer's inputs over ``batch``. Output sides: the label words' directions.

    Where either is not known (embeddings, norms, layers whose output nothing carries on in a known way): random signs.
    Columns of the output side beyond the known ones are zero, so that nothing is spent on them.
    """
    known = places(shared.model)
    chosen = {tensor.name: known[tensor.name] for tensor in tensors}
    inputs = _input_directions(shared, [place for place in chosen.values() if _is_linear(place)], batch, data, rank)
    labels = label_directions(shared, data)
    found = []
    for index, tensor in enumerate(tensors):
        place = chosen[tensor.name]
        if not _is_linear(place):
            found.append(_filled(index, tensor, None, None, rank))
            continue
        output = output_directions(place, known, labels)
        left, right = _with_zeros(output, rank), inputs[tensor.name]
        if isinstance(place.module, Conv1D):  # stored the other way round
            found.append(_filled(index, tensor, right, left, rank))
        else:
            found.append(_filled(index, tensor, left, right, rank))
    return tuple(found)


def label_directions(shared: SharedModel, data: TaskData) -> Tensor:
    """Orthonormal directions of the residual stream that tell the label words apart, [hidden, labels - 1]."""
    words = shared.head.weight[list(data.label_tokens)].float()
    norms = [module for name, module in shared.model.named_modules() if is_norm(module) and not _is_in_a_stack(name)]
    weight = norms[-1].weight if norms else None
    if isinstance(weight, Tensor) and weight.shape == words.shape[1:]:
        words = words * weight.float()
    directions: Tensor = torch.linalg.svd((words - words.mean(dim=0)).T, full_matrices=False).U
    return directions[:, : len(data.label_tokens) - 1]


def output_directions(place: ParameterPlace, known: dict[str, ParameterPlace], labels: Tensor) -> Tensor | None:
    """What moves the label words' logits, seen from the output of a linear layer: [outputs, labels - 1], or None.

    The next layer of the same module that takes this output and writes to the residual stream carries the labels'
    directions back; a layer that itself has the width of the residual stream is taken to write to it.
    """
    siblings = [each for each in known.values() if _is_linear(each) and _parent(each) == _parent(place)]
    outputs = _sizes(place)[1]
    for later in siblings[siblings.index(place) + 1 :]:
        if _sizes(later) == (outputs, len(labels)):
            weight = _weight(later).float()
            return (weight.T if not isinstance(later.module, Conv1D) else weight) @ labels
    return labels if outputs == len(labels) else None


def leading(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` leading left and right singular vectors, as columns; fewer if the matrix is smaller.

    Subspace iteration from a fixed start, so that a large matrix costs products only.
    """
    count = min(count, *matrix.shape)
    width = min(count + _EXTRA_COLUMNS, *matrix.shape)
    start = signs(key_of("sfnode/calibration/1"), matrix.shape[1] * width, 0).reshape(matrix.shape[1], width)
    space = torch.from_numpy(start).to(matrix)
    for _ in range(_ITERATIONS):
        space = torch.linalg.qr(matrix.T @ (matrix @ space)).Q
    small = torch.linalg.svd(matrix @ space, full_matrices=False)
    return small.U[:, :count], space @ small.Vh[:count].T


def _input_directions(
    shared: SharedModel, chosen: Sequence[ParameterPlace], batch: Sequence[Example], data: TaskData, rank: int
) -> dict[str, Tensor]:
    """Leading right singular vectors of every layer's inputs at the tokens of ``batch``: [inputs, rank] by name."""
    rows = row_batch(batch, data.pad, shared.device)
    is_token = (torch.arange(rows.tokens.shape[1], device=shared.device) <= rows.last[:, None]).view(-1)
    found: dict[str, Tensor] = {}

    def hook_of(place: ParameterPlace) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def keep(_module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            flat = arguments[0].reshape(-1, arguments[0].shape[-1])
            found[place.name] = leading(flat[is_token].float(), rank)[1]

        return keep

    hooks = [place.module.register_forward_pre_hook(hook_of(place)) for place in chosen]
    try:
        with torch.inference_mode():
            shared.label_logits(rows, data.label_tokens)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _filled(index: int, tensor: TensorSpec, left: Tensor | None, right: Tensor | None, rank: int) -> Basis:
    """Both sides as int8, completed to ``rank`` columns by random signs."""
    u = _side(index, 0, tensor.rows, left, rank)
    return Basis(u=u, v=_side(index, 1, tensor.cols, right, rank) if tensor.kind is TensorKind.MATRIX else None)


def _side(index: int, side: int, size: int, columns: Tensor | None, rank: int) -> Int8Array:
    drawn = signs(key_of("sfnode/calibration/1", u32(index), u32(side)), size * rank, 0).reshape(size, rank)
    entries = drawn.astype(np.float64)
    if columns is not None:
        lengths = columns.norm(dim=0).clamp_min(torch.finfo(torch.float32).tiny)
        known = (columns / lengths * math.sqrt(size))[:, :rank].cpu().double().numpy()
        entries[:, : known.shape[1]] = known
    return np.clip(np.rint(entries * (1 << UNIT_EXP)), -ENTRY_MAX, ENTRY_MAX).astype(np.int8)


def _with_zeros(columns: Tensor | None, rank: int) -> Tensor | None:
    if columns is None:
        return None
    return functional.pad(columns[:, :rank], (0, max(0, rank - columns.shape[1])))


def _is_linear(place: ParameterPlace) -> bool:
    return isinstance(place.module, nn.Linear | Conv1D) and place.attribute == "weight"


def _sizes(place: ParameterPlace) -> tuple[int, int]:
    """Inputs and outputs of a linear layer."""
    rows, cols = _weight(place).shape
    return (rows, cols) if isinstance(place.module, Conv1D) else (cols, rows)


def _weight(place: ParameterPlace) -> Tensor:
    weight = place.module.weight
    assert isinstance(weight, Tensor)
    return weight


def _parent(place: ParameterPlace) -> str:
    return place.name.rsplit(".", 2)[0]


def _is_in_a_stack(name: str) -> bool:
    return any(part.isdigit() for part in name.split("."))
