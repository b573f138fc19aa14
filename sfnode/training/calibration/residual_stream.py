"""Look at the layers that write to a model's residual stream: their inputs, and the logits when they write more.

Uses forward passes only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers.pytorch_utils import Conv1D

from protocol.errors import OperatorError
from sfnode.training.calibration.calibration import Calibration
from sfnode.training.calibration.entries import Column
from sfnode.training.calibration.readout import Passed, Readout
from sfnode.training.estimator import EVALUATION_TOKENS
from sfnode.training.model import ParameterPlace, perturbed, places
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import RowBatch, chunks_of, row_batch

_LOOKED_AT: Final = 1 / 2  # share of the layers that are looked at: the last ones


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Writer:
    """A layer that writes to the residual stream, the number of its tensor in the run, and its inputs: [N, I]."""

    index: int
    module: nn.Module
    inputs: Tensor

    def sides(self, outputs: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return both sides of a product in the order of the stored weight: GPT-2's are inputs x outputs."""
        return (inputs, outputs) if is_stored_transposed(self.module) else (outputs, inputs)

    def column(self, outputs_H: Tensor, inputs_I: Tensor) -> Column:
        """Return the column of a coefficient that moves this layer."""
        left, right = self.sides(outputs_H, inputs_I)
        return Column(index=self.index, left=left, right=right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Result of one pass over the examples.

    Attributes:
        layers: the last writing layers, in their order.
        directions: vectors that move each contrast's logits by one at the end of the residual stream, [H, K].
        contrasts: [L, K], orthonormal columns that sum to zero: no other change of logits moves a probability.
    """

    layers: Sequence[Writer]
    seen: Passed
    directions: Tensor
    contrasts: Tensor

    def weights(self, readout: Readout) -> list[Tensor]:
        """Return the readout's weights for each contrast, [I, K] for each layer."""
        return [weight_IL @ self.contrasts for weight_IL in readout.weights]


def look_at(calibration: Calibration) -> Look:
    """Run one pass over examples sorted by length. OperatorError: none of the tensors is of a writing layer."""
    writers, labels = writers_of(calibration), len(calibration.data.label_tokens)
    if not writers:
        raise OperatorError(
            "--source forward: none of the run's tensors belongs to a layer that is known to write to the residual "
            "stream; train the linear layers too (--trainable linear), or use --source trajectory"
        )
    writers = writers[-max(2 * (labels - 1), round(_LOOKED_AT * len(writers))) :]
    seen: dict[int, list[Tensor]] = {index: [] for index, _ in writers}
    ends: list[Tensor] = []
    last_N = torch.empty(0)

    def keep(into: list[Tensor]) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda _module, arguments: into.append(last_of(arguments[0], last_N))

    hooks = [place.module.register_forward_pre_hook(keep(seen[index])) for index, place in writers]
    norm = final_norm(calibration.shared)
    hooks += [norm.register_forward_pre_hook(keep(ends))] if norm else []

    def note(rows: RowBatch) -> None:
        nonlocal last_N
        last_N = rows.last

    logits_NL = _logits_of(calibration, hooks, note)
    size = float(torch.cat(ends).std(dim=1).mean()) if ends else 1.0
    inputs = [torch.cat(seen[index]) for index, _ in writers]
    # An orthonormal basis of the logits that sum to zero
    contrasts_LK = torch.linalg.qr(torch.eye(labels)[:, :-1] - torch.eye(labels)[:, 1:]).Q
    return Look(
        layers=[
            Writer(index=index, module=place.module, inputs=each)
            for (index, place), each in zip(writers, inputs, strict=True)
        ],
        seen=Passed(
            logits=logits_NL, labels=torch.tensor([each.label for each in calibration.data.examples]), inputs=inputs
        ),
        directions=(_label_directions(calibration) @ contrasts_LK * size).float(),
        contrasts=contrasts_LK,
    )


def _logits_of(
    calibration: Calibration, hooks: Sequence[RemovableHandle], before: Callable[[RowBatch], None] = lambda _: None
) -> Tensor:
    """Return logits of examples sorted by length, [N, L], then remove the hooks. ``before`` receives each batch."""
    shared, data, found = calibration.shared, calibration.data, []
    try:
        for members in chunks_of(data.examples, EVALUATION_TOKENS):
            rows = row_batch(members, data.pad, shared.device)
            before(rows)
            with torch.inference_mode():
                found.append(shared.label_logits(rows, data.label_tokens).float().cpu())
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(found).clone()


def moved_logits(calibration: Calibration, moves: dict[nn.Module, tuple[Tensor, Tensor]]) -> Tensor:
    """Return logits of the examples, [N, L], when each layer adds ``directions (weight^T x)`` to its output."""

    def adding(weight_IK: Tensor, direction_HK: Tensor) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
        def hook(_module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
            weight, direction = (each.to(output.device, output.dtype) for each in (weight_IK, direction_HK))
            return output + (arguments[0] @ weight) @ direction.T

        return hook

    return _logits_of(calibration, [module.register_forward_hook(adding(*move)) for module, move in moves.items()])


def writers_of(calibration: Calibration) -> list[tuple[int, ParameterPlace]]:
    """Return the linear layers that write to the residual stream, with the numbers of their tensors in the run.

    Their outputs have its width, and they come last among such layers of their module: in an attention the output
    projection does, after the values.
    """
    known = {name: place for name, place in places(calibration.shared.model).items() if is_linear(place)}
    hidden = calibration.shared.head.weight.shape[1]
    last = {_parent(place): place.name for place in known.values() if sizes_of(place)[1] == hidden}
    chosen = [(index, known[tensor.name]) for index, tensor in enumerate(calibration.tensors) if tensor.name in known]
    return [(index, place) for index, place in chosen if last.get(_parent(place)) == place.name]


def _parent(place: ParameterPlace) -> str:
    return place.name.rsplit(".", 2)[0]


def last_of(x: Tensor, last_N: Tensor) -> Tensor:
    """Return the inputs at the token that is read, fp32 on the CPU, [N, I]. x: [N, T, I], or [N T, I] in OPT's MLP."""
    x_NTI = x.reshape(len(last_N), -1, x.shape[-1])
    return x_NTI[torch.arange(len(last_N), device=x.device), last_N].float().cpu()


def _label_directions(calibration: Calibration) -> Tensor:
    """Return directions that raise one label word's logit by one relative to all others, columns of [H, L].

    They are the shortest such vectors at the end of a residual stream of size one.
    """
    shared = calibration.shared
    words_LH = shared.head.weight[list(calibration.data.label_tokens)].float().cpu()
    norm = final_norm(shared)
    weight = None if norm is None else norm.weight
    if isinstance(weight, Tensor):
        words_LH = words_LH * weight.float().cpu()
    result: Tensor = torch.linalg.pinv(words_LH - words_LH.mean(dim=0))
    return result


def final_norm(shared: SharedModel) -> nn.Module | None:
    """Return the norm between the residual stream and the head; None where a model has none."""
    hidden = shared.head.weight.shape[1:]
    norms = [
        module
        for name, module in shared.model.named_modules()
        if perturbed.is_norm(module)
        and not any(part.isdigit() for part in name.split("."))  # a digit: one of a stack of layers
    ]
    weights = [norm.weight for norm in norms[-1:]]
    return norms[-1] if weights and isinstance(weights[0], Tensor) and weights[0].shape == hidden else None


def is_linear(place: ParameterPlace) -> bool:
    """Return whether the parameter is the weight of a linear layer."""
    return isinstance(place.module, nn.Linear | Conv1D) and place.attribute == "weight"


def sizes_of(place: ParameterPlace) -> tuple[int, int]:
    """Return the numbers of inputs and outputs of a linear layer."""
    weight = place.module.weight
    assert isinstance(weight, Tensor)
    rows, cols = weight.shape
    return (rows, cols) if is_stored_transposed(place.module) else (cols, rows)


def is_stored_transposed(module: nn.Module) -> bool:
    """Return whether a linear layer's weight is stored as inputs x outputs, as in GPT-2."""
    return isinstance(module, Conv1D)
