"""Hold base weights in 8 or 4 bits (torchao), with closed epochs as low-rank products on top.

Rounding W - Delta to 8 bits again would lose the update, which is smaller than a step of the rounding. A quantised
weight therefore stays unchanged. The closed epochs' change is kept as two thin matrices and added on the activations,
unless these would be larger than the whole matrix in the dtype of the activations (docs/decisions/0008). The ledger is
independent of this: nodes of any precision share one run.
"""

import importlib
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from protocol.errors import OperatorError
from protocol.state import Int64Array, view_exp
from protocol.subspace import Bases
from sfnode.training.model.change_while_loading import AsRead
from sfnode.training.model.folding import factors_of, fold_tensor, is_quantised, moved_tensors
from sfnode.training.model.loading import compute_dtype, load_causal_lm, output_embedding
from sfnode.training.model.offload import load_offloaded, plan_for
from sfnode.worker_protocol import PRECISIONS

_LIBRARY = "torchao.quantization"
_CHATTY = ("torchao", "torch.utils._pytree")  # at import they warn of kernels for other cards
_INT4_GROUP = 32  # weights that share a scale: the finest choice; 5 bits a weight with the scale
_INT4_OUTPUTS = 16  # the CPU's product needs multiples of this as outputs; CUDA quantises the same layers
_INT4_LAYOUT = "tile_packed_to_4d"  # PyTorch's own int4 product on CUDA
_INT4_ON_CPU = "torchao.prototype.quantization.int4.inference_workflow"  # the same four bits on a CPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Holds the low-rank change of a quantised weight [O, I]: ``left right^T`` is added to it.

    Attributes:
        left: [O, R] and right: [I, R] in the dtype of the activations, on their device.
    """

    left: Tensor
    right: Tensor


Weight = Tensor | Correction


class QuantisedLinear(nn.Linear):
    """A Linear with a quantised weight; computes with the correction that `WeightSwitch` puts in, if any."""

    sfnode_correction: Correction | None

    def forward(self, x: Tensor) -> Tensor:
        """Return x W^T + b, with W = quantised weight + correction."""
        y = nn.functional.linear(x, self.weight, self.bias)
        found = self.sfnode_correction
        if found is not None:
            thin = x.reshape(-1, x.shape[-1]) @ found.right
            y.view(-1, y.shape[-1]).addmm_(thin, found.left.t())
        return y


def load_in(precision: str, folder: Path, device: torch.device, device_memory: int | None = None) -> PreTrainedModel:
    """Load the causal language model in ``folder`` with weights of ``precision``, one of PRECISIONS.

    Each linear layer's weight is quantised before the next one is read: memory holds the quantised model and one weight
    in the dtype of the activations. ``device_memory``: MiB that the weights may take on ``device``, while others wait
    (`offload`); None: no limit.

    OperatorError: as `load_causal_lm`; torchao is not installed, or does not support ``device`` or this model; there is
    no room for the weights, which is checked before any is read.
    """
    if precision not in PRECISIONS:
        raise OperatorError(f"dtype {precision!r}: allowed are {', '.join(PRECISIONS)}")
    dtype = compute_dtype(precision)
    if waiting := plan_for(folder, precision, device, device_memory).waiting:
        return load_offloaded(folder, device, dtype, waiting)
    if not PRECISIONS[precision].is_quantised:
        return load_causal_lm(folder, device, dtype)
    _config(precision, device)
    as_read = AsRead(
        lambda empty: [f"{name}.weight" for name in _chosen_layers(precision, empty)],
        lambda _, weight: quantised_weight(precision, device, weight),
    )
    model = load_causal_lm(folder, device, dtype, as_read)
    for layer in _chosen_layers(precision, model).values():
        vars(layer)["sfnode_correction"] = None
        layer.__class__ = QuantisedLinear
    return model


def _library() -> Any:
    """Import torchao, which has no types. Only quantised precisions need it."""
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.ERROR)
    if cast(Any, sys.modules).get("torchao", ...) is None:  # `sfnode.training` hides it from transformers
        del sys.modules["torchao"]
    return importlib.import_module(_LIBRARY)


def _chosen_layers(precision: str, model: PreTrainedModel) -> dict[str, nn.Linear]:
    """Return the layers to quantise, by name: linear ones other than the head, of sizes that the products can take."""
    head = output_embedding(model)
    outputs, inputs = (_INT4_OUTPUTS, _INT4_GROUP) if precision == "int4" else (1, 1)
    layers = {name: each for name, each in model.named_modules() if type(each) is nn.Linear and each is not head}
    chosen = {
        name: layer for name, layer in layers.items() if layer.out_features % outputs == layer.in_features % inputs == 0
    }
    if not chosen:
        raise OperatorError(
            f"{type(model).__name__} has no linear layer that can be quantised: use --dtype fp32, bf16 or fp16"
        )
    return chosen


def quantised_weight(precision: str, device: torch.device, weight: Tensor) -> nn.Parameter:
    """Return ``weight`` [O, I] in the numbers of ``precision``, on ``device``; OperatorError without torchao."""
    config = _config(precision, device)
    outputs, inputs = weight.shape
    layer = nn.Linear(inputs, outputs, bias=False, device="meta")  # the library quantises layers only
    layer.weight = nn.Parameter(weight.detach().to(device), requires_grad=False)
    _library().quantize_(layer, config, filter_fn=lambda _module, _name: True)
    layer.weight.requires_grad_(False)
    return layer.weight


def _config(precision: str, device: torch.device) -> Any:
    """Return torchao's settings for ``precision``. OperatorError unless ``device`` can compute with such weights."""
    if precision == "int4" and device.type not in ("cpu", "cuda"):
        raise OperatorError("dtype 'int4' works on CPUs and CUDA only: use --dtype int8 on this device")
    try:
        library = _library()
        if precision != "int4":
            return library.Int8WeightOnlyConfig(version=2, set_inductor_config=False)
        if device.type == "cpu":
            on_cpu: Any = importlib.import_module(_INT4_ON_CPU)
            return on_cpu.PrototypeInt4WeightOnlyConfig(group_size=_INT4_GROUP, set_inductor_config=False)
        return library.Int4WeightOnlyConfig(
            group_size=_INT4_GROUP, int4_packing_format=_INT4_LAYOUT, set_inductor_config=False
        )
    except (ImportError, AttributeError):  # not installed, or a version with other names
        raise OperatorError(
            f"dtype {precision!r} needs torchao 0.18, which is not installed: in a clone of sfnode, run "
            "`python deploy/install.py --extras train,quantised`"
        ) from None


def closed_weights(
    bases: Bases,
    epochs: Mapping[int, Int64Array],
    base: Mapping[str, Tensor],
    placed: Callable[[str, Tensor], Tensor] = lambda _, weight: weight,
) -> dict[str, Weight]:
    """Fold as `fold_weights` does; return a quantised weight's change as a correction if that is the smaller one.

    ``placed(name, weight)`` moves a folded weight to its place before the next one is folded.
    """
    names = [tensor.name for tensor in bases.manifest.tensors]
    result: dict[str, Weight] = {}
    for index, moved in moved_tensors(bases, epochs).items():
        weight = base[names[index]]
        correction = _correction(bases, index, moved, weight) if is_quantised(weight) else None
        result[names[index]] = correction or placed(names[index], fold_tensor(bases, index, moved, weight))
    return result


def _correction(bases: Bases, index: int, moved: Mapping[int, Int64Array], weight: Tensor) -> Correction | None:
    """Return the change of a quantised weight; None where it would be as large as the whole matrix or larger."""
    rows, cols = weight.shape
    # One thin pair for all epochs: sum_i L_i R_i^T = [L_1 L_2 ...] [R_1 R_2 ...]^T.
    products = factors_of(bases, index, moved, torch.device("cpu"))
    rights = [right for _, right in products if right is not None]
    if sum(right.shape[1] for right in rights) * (rows + cols) >= rows * cols:
        return None
    left = torch.cat([left for left, _ in products], dim=1) * -(2.0 ** view_exp(bases.manifest, index))
    right = torch.cat(rights, dim=1)
    return Correction(left=left.to(weight.device, weight.dtype), right=right.to(weight.device, weight.dtype))
