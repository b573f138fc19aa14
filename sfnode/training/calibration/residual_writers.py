"""Find the layers that write to a model's residual stream: only these can have a dense core.

What they are called and where they stand does not say it: a gate or a value may have the stream's width, and come last
in its module. So it is tried: a move of a writing layer's output arrives at the end of the stream.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from protocol.errors import OperatorError
from protocol.run import TensorKind, TensorSpec
from protocol.subspace import words
from sfnode.training.model import TensorGroup, layer_probe, places
from sfnode.training.shared_model import SharedModel

_MOVING = 1 / 3  # share of the writing layers that get a core
_DEEP = 24  # from so many writing layers on they are spread: docs/decisions/0032-all-numbers-from-one-pass.md
_ROWS = 8
_TOKENS = 5
_MOVE = 0.1  # of the stream's size: in 16 bits it is not lost, and later layers change nearly linearly
_ALONG = 1 / 3  # least cosine of what arrives with the move; of one that does not it is 0 +- sqrt(1 / 8 H)


def moving_tensors(writers: Sequence[TensorSpec], *, has_label_words: bool) -> tuple[TensorSpec, ...]:
    """Return the third of the layers that write to the residual stream which gets a core.

    With label words in a deep model it is every second one of each kind in the last two thirds, else the last third.
    """
    if not has_label_words or len(writers) < _DEEP:
        return tuple(writers[-max(1, round(_MOVING * len(writers))) :])
    kinds: dict[str, list[TensorSpec]] = {}
    for writer in writers:
        kinds.setdefault(_kind_of(writer), []).append(writer)
    spread = {each.name for kind in kinds.values() for each in kind[-round(2 * _MOVING * len(kind)) :][::-2]}
    return tuple(each for each in writers if each.name in spread)


@torch.inference_mode()
def writers_of(shared: SharedModel, tensors: Sequence[TensorSpec]) -> list[TensorSpec]:
    """Return the tensors of linear layers that write to the residual stream.

    Their outputs have its width. Layers are of one kind if their names differ in a number alone; the last of its kind
    is tried, since fewest layers change the move after it. Passes a few tokens forward, twice.

    OperatorError: the model gives numbers that are not finite.
    """
    known = {name: place for name, place in places(shared.model).items() if place.group is TensorGroup.LINEAR}
    wide: list[TensorSpec] = []
    last_of_kind: dict[str, nn.Module] = {}
    for tensor in tensors:
        module = known[tensor.name].module if tensor.name in known else None
        is_turned = isinstance(module, Conv1D)
        if module is not None and shared.head.weight.shape[1] == (tensor.cols if is_turned else tensor.rows):
            wide.append(replace(tensor, kind=TensorKind.TRANSPOSED) if is_turned else tensor)
            last_of_kind[_kind_of(tensor)] = module
    along = dict(zip(last_of_kind, _arriving(shared, list(last_of_kind.values())), strict=True))
    return [each for each in wide if along[_kind_of(each)] >= _ALONG]


def _kind_of(tensor: TensorSpec) -> str:
    return ".".join("#" if part.isdigit() else part for part in tensor.name.split("."))


def _arriving(shared: SharedModel, layers: Sequence[nn.Module]) -> list[float]:
    """Return the cosine of a move of each layer's output at the last token with that of the stream's end."""
    hidden = shared.head.weight.shape[1]
    signs = words(0, _ROWS * hidden).astype(np.int64) % 2 * 2.0 - 1.0
    move_RH = torch.from_numpy(signs).view(_ROWS, hidden).to(shared.device, shared.loss_dtype)
    before_RH = _end(shared, [], move_RH)
    if not layers or before_RH.shape != move_RH.shape:
        return [0.0] * len(layers)
    if not before_RH.isfinite().all():
        raise OperatorError("the model gives numbers that are not finite on a few tokens; try another model")
    after_LRH = _end(shared, layers, move_RH * _MOVE * before_RH.std()).view(len(layers), _ROWS, hidden)
    moved_LRH = after_LRH - before_RH
    lengths_L = moved_LRH.flatten(1).norm(dim=1).clamp_min(1e-12) * move_RH.norm()
    return [float(each) for each in (moved_LRH * move_RH).flatten(1).sum(dim=1) / lengths_L]


def _end(shared: SharedModel, layers: Sequence[nn.Module], move_RH: Tensor) -> Tensor:
    """Return the end of the stream at the last token, [rows, H] in the loss dtype.

    The rows come once for each of ``layers`` with its output moved; once as they are where there are none.
    """
    tokens = layer_probe.probe_tokens(shared.model, _ROWS, _TOKENS).repeat(max(1, len(layers)), 1)
    ends: list[Tensor] = []

    def moved(number: int, output: Tensor) -> Tensor:
        if output.numel() != tokens.numel() * move_RH.shape[1]:
            return output
        y_NTH = output.clone().view(*tokens.shape, -1)
        y_NTH[number * _ROWS : (number + 1) * _ROWS, -1] += move_RH.to(y_NTH.dtype)
        return y_NTH.view_as(output)

    with ExitStack() as hooks:
        for number, layer in enumerate(layers):
            hooks.enter_context(layer.register_forward_hook(lambda _, _inputs, output, n=number: moved(n, output)))
        if shared.final_norm is not None:
            hooks.enter_context(shared.final_norm.register_forward_pre_hook(lambda _, inputs: ends.append(inputs[0])))
        with shared.pass_context.carrying({}, 1, tokens.numel()):
            hidden_NTH = layer_probe.hidden_states(shared.model, tokens)
    return (ends[-1] if ends else hidden_NTH).reshape(*tokens.shape, -1)[:, -1].to(shared.loss_dtype)
