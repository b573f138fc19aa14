"""Base weights in 8 or 4 bits (torchao), and closed epochs beside them as low-rank products.

Rounding W - Delta to 8 bits again would lose the update: it is smaller than a step of the rounding. So a quantised
weight stays what it is, and what the closed epochs add is kept as two thin matrices and added on the activations, until
they would be larger than the whole matrix in the dtype of the activations (docs/decisions/0008). The ledger knows
nothing of this: nodes of any precision share one run.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from protocol.errors import OperatorError
from protocol.state import view_exp
from protocol.subspace import Bases, Start
from sfnode.training.model.as_read import AsRead
from sfnode.training.model.folding import Int64Array, factors_of, fold_tensor, is_quantised, moved_tensors, starts_in
from sfnode.training.model.loading import compute_dtype, load_causal_lm, output_embedding
from sfnode.training.model.offload import load_offloaded, plan_for
from sfnode.worker_protocol import PRECISIONS

_LIBRARY: Final = "torchao.quantization"
_CHATTY: Final = ("torchao", "torch.utils._pytree")  # at import they warn of kernels for cards that are not here
_INT4_GROUP: Final = 32  # weights that share a scale: the finest, 5 bits a weight with it
_INT4_OUTPUTS: Final = 16  # a layer's outputs must be a multiple, for the CPU's product; CUDA's chooses the same layers
_INT4_LAYOUT: Final = "tile_packed_to_4d"  # PyTorch's own int4 product on CUDA
_INT4_ON_CPU: Final = "torchao.prototype.quantization.int4.inference_workflow"  # on a CPU: the same four bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What is added to a quantised weight [O, I]: ``left right^T``.

    Attributes:
        left: [O, R] and right: [I, R] in the dtype of the activations, on their device.
    """

    left: Tensor
    right: Tensor


Weight: TypeAlias = Tensor | Correction


class QuantisedLinear(nn.Linear):
    """A Linear whose weight is quantised; computes with the correction that `WeightSwitch` puts in, if any."""

    sfnode_correction: Correction | None

    def forward(self, x: Tensor) -> Tensor:
        """x W^T + b, with W = quantised weight + correction."""
        y = functional.linear(x, self.weight, self.bias)
        found = self.sfnode_correction
        if found is not None:
            thin = x.reshape(-1, x.shape[-1]) @ found.right
            y.view(-1, y.shape[-1]).addmm_(thin, found.left.t())
        return y


def choose_precision(name: str) -> str:
    """``name`` if it is a precision that a node can train in; OperatorError for any other."""
    if name not in PRECISIONS:
        raise OperatorError(f"dtype {name!r}: allowed are {', '.join(PRECISIONS)}")
    return name


def load_in(precision: str, folder: Path, device: torch.device, device_memory: int | None = None) -> PreTrainedModel:
    """The causal language model in ``folder`` with weights of ``precision`` (`choose_precision`).

    A linear layer's weight is quantised when it has been read, and before the next one is: what is in memory is the
    quantised model and one weight in the dtype of the activations.

    Args:
        device_memory: MiB that the weights may take on ``device``, while others wait (`offload`); None: no limit.

    Raises:
        OperatorError: as `load_causal_lm`; torchao is not installed, or cannot do this on ``device`` or this model;
            there is no room for the weights, which is said before any is read.
    """
    dtype = compute_dtype(precision)
    if waiting := plan_for(folder, precision, device, device_memory).waiting:
        return load_offloaded(folder, device, dtype, waiting)
    if not PRECISIONS[precision].is_quantised:
        return load_causal_lm(folder, device, dtype)
    _check(precision, device)
    as_read = AsRead(partial(_chosen_names, precision), partial(_quantised, precision, device))
    model = load_causal_lm(folder, device, dtype, as_read)
    for layer in _chosen_layers(precision, model):
        _adopt(layer)
    return model


def _library() -> Any:
    """torchao. Only those who ask for it need it, and it has no types."""
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.ERROR)
    if cast(Any, sys.modules).get("torchao", ...) is None:  # hidden from transformers: `sfnode.training`
        del sys.modules["torchao"]
    return importlib.import_module(_LIBRARY)


def _check(precision: str, device: torch.device) -> None:
    """OperatorError unless ``device`` can compute with weights of ``precision``."""
    if precision == "int4" and device.type not in ("cpu", "cuda"):
        raise OperatorError("dtype 'int4' works on CPUs and CUDA only: use --dtype int8 on this device")
    try:
        _config(precision, device)
    except (ImportError, AttributeError):  # none, or one that has it elsewhere
        raise OperatorError(
            f"dtype {precision!r} needs torchao 0.18, which is not installed: in a clone of sfnode, run "
            "`python deploy/install.py --extras train,quantised`"
        ) from None


def quantise_weights(model: PreTrainedModel, precision: str, device: torch.device) -> None:
    """Quantise every linear layer of ``model`` but the head, in place, each on ``device``.

    OperatorError when there is none (GPT-2 has another class of layers).
    """
    for layer in _chosen_layers(precision, model):
        layer.weight = _quantised(precision, device, "weight", layer.weight)
        _adopt(layer.to(device))


def _chosen_layers(precision: str, model: PreTrainedModel) -> list[nn.Linear]:
    head, (outputs, inputs) = output_embedding(model), _multiples(precision)
    layers = [module for module in model.modules() if type(module) is nn.Linear and module is not head]
    chosen = [layer for layer in layers if layer.out_features % outputs == layer.in_features % inputs == 0]
    if not chosen:
        raise OperatorError(
            f"{type(model).__name__} has no linear layer that can be quantised: use --dtype fp32, bf16 or fp16"
        )
    return chosen


def _chosen_names(precision: str, model: PreTrainedModel) -> list[str]:
    chosen = {id(layer) for layer in _chosen_layers(precision, model)}
    return [f"{name}.weight" for name, module in model.named_modules() if id(module) in chosen]


def _quantised(precision: str, device: torch.device, _name: str, weight: Tensor) -> nn.Parameter:
    """``weight`` [O, I] in the numbers of ``precision``, on ``device``."""
    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs, bias=False, device="meta")  # what the library knows how to quantise
    layer.weight = nn.Parameter(weight.detach().to(device), requires_grad=False)
    _library().quantize_(layer, _config(precision, device), filter_fn=_any_layer)
    layer.weight.requires_grad_(False)
    return layer.weight


def _adopt(layer: nn.Linear) -> None:
    """Make a layer whose weight is quantised compute with it."""
    vars(layer)["sfnode_correction"] = None
    layer.__class__ = QuantisedLinear


def _any_layer(module: nn.Module, name: str) -> bool:
    return True


def _multiples(precision: str) -> tuple[int, int]:
    """Of what a layer's outputs and inputs must be multiples."""
    return (_INT4_OUTPUTS, _INT4_GROUP) if precision == "int4" else (1, 1)


def _config(precision: str, device: torch.device) -> Any:
    """torchao's name for ``precision`` on ``device``."""
    library = _library()
    if precision != "int4":
        return library.Int8WeightOnlyConfig(version=2, set_inductor_config=False)
    if device.type == "cpu":
        on_cpu: Any = importlib.import_module(_INT4_ON_CPU)
        return on_cpu.PrototypeInt4WeightOnlyConfig(group_size=_INT4_GROUP, set_inductor_config=False)
    return library.Int4WeightOnlyConfig(
        group_size=_INT4_GROUP, int4_packing_format=_INT4_LAYOUT, set_inductor_config=False
    )


def closed_weights(
    bases: Bases,
    epochs: Mapping[int, Int64Array],
    base: Mapping[str, Tensor],
    placed: Callable[[str, Tensor], Tensor] = lambda _, weight: weight,
    at: int | None = None,
) -> dict[str, Weight]:
    """`fold_weights`, but a quantised weight's change comes as a correction while that is smaller than the weight.

    ``placed(name, weight)``: a folded weight where it is to be, before the next one is folded.
    ``at``: as `fold_weights`.
    """
    starts = starts_in(bases, epochs, at)
    names = [tensor.name for tensor in bases.manifest.tensors]
    result: dict[str, Weight] = {}
    for index, moved in moved_tensors(bases, epochs, starts).items():
        weight = base[names[index]]
        correction = _correction(bases, index, moved, starts, weight) if is_quantised(weight) else None
        result[names[index]] = correction or placed(names[index], fold_tensor(bases, index, moved, starts, weight))
    return result


def _correction(
    bases: Bases, index: int, moved: Mapping[int, Int64Array], starts: Collection[Start], weight: Tensor
) -> Correction | None:
    """None where it would be larger than the whole matrix."""
    rows, cols = weight.shape
    products = factors_of(bases, index, moved, starts, torch.device("cpu"))
    rights = [each.right for each in products if each.right is not None]
    if sum(right.shape[1] for right in rights) * (rows + cols) >= rows * cols:
        return None
    manifest = bases.manifest
    unit = 2.0**-manifest.method.basis_unit_exp  # each side is scaled by its own: an fp16 product could overflow
    scale = -(2.0 ** view_exp(manifest, index)) / unit
    left = torch.cat([each.left for each in products], dim=1) * scale
    right = torch.cat(rights, dim=1) * unit
    return Correction(left=left.to(weight.device, weight.dtype), right=right.to(weight.device, weight.dtype))
