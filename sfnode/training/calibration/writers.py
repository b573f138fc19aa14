"""Find the layers that write to a model's residual stream: only these can have a dense core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from torch import Tensor
from transformers.pytorch_utils import Conv1D

from protocol.run import TensorKind, TensorSpec
from sfnode.training.model import ParameterPlace, TensorGroup, places
from sfnode.training.shared_model import SharedModel

_MOVING: Final = 1 / 3  # share of the writing layers that get a core: the last ones


def moving_tensors(shared: SharedModel, tensors: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Return the tensors that get a core, those stored as inputs x outputs as transposed ones; none may be found."""
    writers = writers_of(shared, tensors)
    return tuple(writers[-max(1, round(_MOVING * len(writers))) :])


def writers_of(shared: SharedModel, tensors: Sequence[TensorSpec]) -> list[TensorSpec]:
    """Return the tensors of linear layers that write to the residual stream.

    Their outputs have its width, and they come last among such layers of their module: in an attention the output
    projection does, after the values.
    """
    known = {name: place for name, place in places(shared.model).items() if place.group is TensorGroup.LINEAR}
    hidden, last = shared.head.weight.shape[1], {}
    for place in known.values():
        weight = place.module.weight
        assert isinstance(weight, Tensor)
        if weight.shape[isinstance(place.module, Conv1D)] == hidden:
            last[_parent(place)] = place.name
    writers = [each for each in tensors if each.name in known and last.get(_parent(known[each.name])) == each.name]
    return [
        replace(each, kind=TensorKind.TRANSPOSED) if isinstance(known[each.name].module, Conv1D) else each
        for each in writers
    ]


def _parent(place: ParameterPlace) -> str:
    return place.name.rsplit(".", 2)[0]
