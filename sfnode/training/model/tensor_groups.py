"""List the tensors of a model that can be trained, in groups, and swap its layers for perturbable ones."""

import copy
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from protocol.errors import OperatorError
from protocol.run import TensorKind, TensorSpec
from sfnode.training.model.layer_probe import faults_of_use
from sfnode.training.model.loading import output_embedding
from sfnode.training.model.offload import laid_aside, waiting_weights
from sfnode.training.model.perturbed import BIAS, WEIGHT, PassContext, Slot, is_norm, normalised, perturbed_class
from sfnode.training.model.quantised import Correction, Weight

_AFFINE_TOLERANCE = 1e-3  # relative; the error of a different kind of norm is of the size of its output


class TensorGroup(StrEnum):
    """Names groups of tensors, from which the owner of a run chooses what to train."""

    LINEAR = "linear"  # weights of linear layers except the head
    EMBEDDING = "embedding"  # token and position embeddings; the head's weight, tied or not
    NORM = "norm"  # weights and biases of LayerNorm and RMSNorm
    BIAS = "bias"  # biases of linear layers


DEFAULT_GROUPS = (TensorGroup.LINEAR,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterPlace:
    """Locates a parameter: its name in the checkpoint, its module and attribute, and its group."""

    name: str
    module: nn.Module
    attribute: str
    group: TensorGroup


def trainable_tensors(model: PreTrainedModel, groups: Sequence[TensorGroup] = DEFAULT_GROUPS) -> tuple[TensorSpec, ...]:
    """Return specs of all trainable tensors of ``groups``, in the checkpoint's order; tied ones by their first name.

    `left_out` lists the other tensors with reasons. Runs the model over a few tokens.
    """
    chosen = [place for place in places(model).values() if place.group in groups]
    faults = _faults(model, chosen)
    found = [_spec_of(place) for place in chosen if place.name not in faults]
    if not found:
        raise OperatorError(f"the model has no trainable tensor of the groups {', '.join(groups)}")
    return tuple(found)


def left_out(model: PreTrainedModel) -> dict[str, str]:
    """Return every tensor of the model that no group can train, with the reason, in the checkpoint's order."""
    known = places(model)
    faults = _faults(model, known.values())
    names = [name for name, _ in model.named_parameters() if name not in known or name in faults]
    return {name: faults.get(name) or _why_not(model, name) for name in names}


def _faults(model: PreTrainedModel, chosen: Collection[ParameterPlace]) -> dict[str, str]:
    """Return why the model's use of its layers forbids training some of ``chosen``, by the tensor's name."""
    faults = faults_of_use(model, [place.module for place in chosen])
    return {
        place.name: f"{place.name} cannot be trained: {faults[id(place.module)]}; leave it out of the run's tensors"
        for place in chosen
        if id(place.module) in faults
    }


def places(model: PreTrainedModel) -> dict[str, ParameterPlace]:
    """Return every parameter that belongs to a group, by name, in the checkpoint's order."""
    head = output_embedding(model)
    by_parameter = {id(parameter): name for name, parameter in model.named_parameters()}  # first name of tied ones
    owners = Counter(id(each) for module in model.modules() for each in module.parameters(recurse=False))
    found: dict[str, ParameterPlace] = {}
    for module in model.modules():
        for attribute, parameter in module.named_parameters(recurse=False):
            group = _group(module, attribute, is_head=module is head)
            name = by_parameter[id(parameter)]
            is_number = parameter.is_floating_point()  # False where a library packed a quantised checkpoint
            # Of a weight that several layers share, one layer alone would move.
            is_alone = owners[id(parameter)] == 1 or group is TensorGroup.EMBEDDING
            if group is not None and is_number and is_alone and name not in found:
                found[name] = ParameterPlace(name=name, module=module, attribute=attribute, group=group)
    return {name: found[name] for name in by_parameter.values() if name in found}


def is_of(tensor: TensorSpec, place: ParameterPlace) -> bool:
    """Return whether a tensor of a run has the name, the shape and the layout of a parameter."""
    is_turned = isinstance(place.module, Conv1D) and tensor.kind is TensorKind.TRANSPOSED
    return _spec_of(place) == (replace(tensor, kind=TensorKind.MATRIX) if is_turned else tensor)


def _spec_of(place: ParameterPlace) -> TensorSpec:
    shape = getattr(place.module, place.attribute).shape
    kind = TensorKind.MATRIX if len(shape) == 2 else TensorKind.VECTOR
    return TensorSpec(name=place.name, kind=kind, rows=shape[0], cols=shape[1] if len(shape) == 2 else 0)


def _group(module: nn.Module, attribute: str, *, is_head: bool) -> TensorGroup | None:
    if attribute not in (WEIGHT, BIAS):
        return None
    if isinstance(module, nn.Embedding):
        return TensorGroup.EMBEDDING
    if isinstance(module, nn.Linear | Conv1D):
        if is_head:
            return TensorGroup.EMBEDDING if attribute == WEIGHT else None
        return TensorGroup.LINEAR if attribute == WEIGHT else TensorGroup.BIAS
    return TensorGroup.NORM if is_norm(module) else None


def attach(
    model: PreTrainedModel, tensors: Iterable[TensorSpec], context: PassContext, *, is_dense: bool = False
) -> None:
    """Make the layers of ``tensors`` add the terms of ``context``. Further calls may add tensors.

    ``is_dense``: the run has a dense core, so that a weight stored as inputs x outputs must be listed as transposed.
    OperatorError: a name that the model lacks, a tensor that cannot be trained, or another shape.
    """
    known = places(model)
    chosen = []
    for tensor in tensors:
        place = known.get(tensor.name)
        if place is None:
            raise OperatorError(_why_not(model, tensor.name))
        is_read_turned = is_dense and tensor.kind is TensorKind.MATRIX and isinstance(place.module, Conv1D)
        if not is_of(tensor, place) or is_read_turned:
            shape = tuple(getattr(place.module, place.attribute).shape)
            raise OperatorError(
                f"tensor {tensor.name}: {shape} in the model, {tensor.rows} x {tensor.cols} ({tensor.kind}) in the run"
            )
        chosen.append(place)
    for fault in _faults(model, [place for place in chosen if not hasattr(place.module, "sfnode_slot")]).values():
        raise OperatorError(fault)
    for place in chosen:
        module = place.module
        slot: Slot | None = getattr(module, "sfnode_slot", None)
        if slot is None:
            kind = perturbed_class(type(module))
            if kind is None:
                fault = f"layers of {type(module).__name__} are not supported"
                raise OperatorError(f"{place.name} cannot be trained: {fault}")
            if is_norm(module):
                _check_affine(place)
            module.__class__ = kind
            slot = Slot(context=context)
        assert slot.context is context, "one SharedModel to a model: the layers would listen to the first one only"
        names = {WEIGHT: slot.weight, BIAS: slot.bias, place.attribute: place.name}
        vars(module)["sfnode_slot"] = Slot(context=context, weight=names[WEIGHT], bias=names[BIAS])


def _why_not(model: PreTrainedModel, name: str) -> str:
    for module_name, module in model.named_modules(remove_duplicate=False):
        for attribute, _ in module.named_parameters(recurse=False):
            if f"{module_name}.{attribute}".removeprefix(".") == name:
                return (
                    f"tensor {name} cannot be trained: it is tied to another, belongs to the head, or its layer "
                    f"({type(module).__name__}) is not supported; leave it out of the run's tensors"
                )
    return f"tensor {name}: the model has none of that name; is this the run's model?"


def _check_affine(place: ParameterPlace) -> None:
    """Raise OperatorError unless adding delta to a norm's weight adds normal(x) * delta to its output.

    All known classes do so; unknown classes are found out here.
    """
    module = copy.deepcopy(place.module).to("cpu", torch.float32)
    weight: Tensor = module.weight  # type: ignore[assignment]
    x = torch.sin(torch.arange(4 * weight.numel(), dtype=torch.float32)).view(1, 4, -1) + 0.5
    delta = torch.cos(torch.arange(weight.numel(), dtype=torch.float32))
    with torch.inference_mode():
        before = module(x)
        expected = before + normalised(module, x) * delta
        module.weight = nn.Parameter(weight + delta, requires_grad=False)
        error = (module(x) - expected).abs().max().item()
    if error > _AFFINE_TOLERANCE * expected.abs().max().item():
        raise OperatorError(
            f"{place.name} cannot be trained: {type(place.module).__name__} is not a known kind of LayerNorm or RMSNorm"
        )


class WeightSwitch:
    """Temporarily replaces a model's parameters by other tensors. Only pointers move, no weight is copied."""

    def __init__(self, model: PreTrainedModel) -> None:
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._device = model.device
        self._owners: dict[str, list[tuple[nn.Module, str]]] = {}
        self.base: dict[str, Tensor] = {}
        for module in model.modules():
            for attribute, parameter in module.named_parameters(recurse=False):
                name = names[id(parameter)]
                self._owners.setdefault(name, []).append((module, attribute))  # tied parameters have several owners
                self.base[name] = (waiting_weights(module) or {}).get(attribute, parameter)

    @contextmanager
    def using(self, weights: Mapping[str, Weight]) -> Iterator[None]:
        """Compute with ``weights`` (by name) in place of the model's own, or with corrected ones, within the block."""
        try:
            for name, weight in weights.items():
                self._put(name, weight if isinstance(weight, Correction) else nn.Parameter(weight, requires_grad=False))
            yield
        finally:
            for name, weight in weights.items():
                self._put(name, None if isinstance(weight, Correction) else self.base[name])

    def placed(self, name: str, weight: Tensor) -> Tensor:
        """Move ``weight``, the replacement of a base weight, to where that one waits, if it does."""
        module, attribute = self._owners[name][0]
        waits = attribute == WEIGHT and waiting_weights(module) is not None
        return laid_aside(weight, self._device) if waits else weight

    def _put(self, name: str, weight: Weight | None) -> None:
        """Make all owners of ``name`` compute with ``weight``, or with their own and a correction; None ends that."""
        for module, attribute in self._owners[name]:
            if weight is None or isinstance(weight, Correction):
                vars(module)["sfnode_correction"] = weight
            elif (waiting := waiting_weights(module)) is not None:
                waiting[attribute] = weight
            else:
                setattr(module, attribute, weight)
