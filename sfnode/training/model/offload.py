"""Keep weights outside the device until their layer computes: accelerate's hooks bring them in and release them.

For a CUDA device they wait in main memory. Elsewhere they wait in mapped temporary files without a name: the system
reads them on use and drops them when it needs the memory (`weight_plan`). Nothing else changes: the layers compute with
the same numbers in the same order.
"""

import functools
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from protocol.errors import OperatorError
from sfnode.storage import disk
from sfnode.training.model.change_while_loading import AsRead
from sfnode.training.model.layer_probe import probe_tokens
from sfnode.training.model.loading import empty_model, load_causal_lm, output_embedding
from sfnode.worker_protocol import PRECISIONS, WeightPlan, plan_weights, temporary_folder, waits_in_files

_ROWS, _TOKENS = 2, 3  # size of the pass of `_check_use`


def plan_for(folder: Path, precision: str, device: torch.device, device_memory: int | None) -> WeightPlan:
    """Plan where the weights of the model in ``folder`` go, without reading them.

    OperatorError, with a remedy, where there is no room for them.
    """
    plan = _plan(folder, precision, device_memory)
    plan.check_room(device.type, torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None)
    return plan


def check_whole_fits(folder: Path, dtype: torch.dtype = torch.float32) -> None:
    """Raise OperatorError unless main memory has room for the whole model in ``dtype``, without offloading."""
    replace(_plan(folder, "fp32" if dtype == torch.float32 else "bf16", None), least=None).check_room("cpu", None)


def _plan(folder: Path, precision: str, device_memory: int | None) -> WeightPlan:
    model = empty_model(folder)
    numbers, linear = PRECISIONS[precision], _linear_weights(model)
    whole = sum(weight.numel() for weight in model.parameters())
    sizes = {name: int(weight.numel() * numbers.linear_bytes) for name, weight in linear.items()}
    others = int((whole - sum(weight.numel() for weight in linear.values())) * numbers.compute_bytes)
    return plan_weights(sizes, others, precision, device_memory)


def _linear_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the weights that can wait, by name: those of linear layers other than the head, used by one layer only."""
    head = output_embedding(model)
    users = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
    return {
        f"{name}.weight": cast(Tensor, layer.weight)
        for name, layer in model.named_modules()
        if type(layer) in (nn.Linear, Conv1D) and layer is not head and users[id(layer.weight)] == 1
    }


def load_offloaded(folder: Path, device: torch.device, dtype: torch.dtype, waiting: tuple[str, ...]) -> PreTrainedModel:
    """Load a model as `load_causal_lm` does, without ever holding all weights named ``waiting`` on ``device`` at once.

    OperatorError as there; or the model uses such a weight without calling its layer, or a file cannot be written.
    """
    as_read = AsRead(lambda _: waiting, lambda _, weight: laid_aside(weight, device))
    model = load_causal_lm(folder, torch.device("cpu"), dtype, as_read if waits_in_files(device.type) else None)
    offload(model, device, waiting)
    return model


def offload(model: PreTrainedModel, device: torch.device, waiting: Iterable[str]) -> None:
    """Move ``model`` from main memory to ``device``; the weights named ``waiting`` stay where they are.

    OperatorError where the model uses such a weight without calling its layer.
    """
    layers = [model.get_submodule(name.rpartition(".")[0]) for name in waiting]
    weights = [cast(nn.Parameter, layer.weight) for layer in layers]
    for layer in layers:
        layer.weight = None  # keeps its place in the order of parameters
    cast(Any, model).to(device)
    for layer, weight in zip(layers, weights, strict=True):
        layer.weight = weight
        held = dict(layer.named_parameters(recurse=False))  # may include a bias, which stays on the device
        add_hook_to_module(layer, AlignDevicesHook(execution_device=device, offload=True, weights_map=held))
        # accelerate would keep calling the forward method of the present class, but `attach` changes the layer's class
        vars(layer)["_old_forward"] = functools.partial(_forward, layer)
    _check_use(model)


def _forward(layer: nn.Module, *arguments: object, **named: object) -> object:
    return type(layer).forward(layer, *arguments, **named)


class _OnlyNumbers(TorchDispatchMode):  # type: ignore[no-untyped-call]  # the base has no types
    """Raises RuntimeError where an operation takes both tensors with and without numbers.

    PyTorch itself computes such a product on the CPU from arbitrary memory, without an error (2.13).
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        if len({each.is_meta for each in tensors}) > 1:
            raise RuntimeError(f"{func} computes with a weight that is not there")
        return func(*args, **(kwargs or {}))


@torch.inference_mode()
def _check_use(model: PreTrainedModel) -> None:
    """Raise OperatorError where the model uses a weight without calling its layer: no hook would bring it in."""
    try:
        with _OnlyNumbers():  # type: ignore[no-untyped-call]
            model(input_ids=probe_tokens(model, _ROWS, _TOKENS), use_cache=False)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise OperatorError(
            f"{type(model).__name__} cannot be used with --device-memory: it uses the weight of a layer without "
            "calling the layer. Leave the option out, or use another model"
        ) from error


def waiting_weights(module: nn.Module) -> dict[str, Tensor] | None:
    """Return the weights that the hook of ``module`` brings in, by attribute; they may be replaced. None: no hook."""
    hook = vars(module).get("_hf_hook")
    return cast(dict[str, Tensor], hook.weights_map) if isinstance(hook, AlignDevicesHook) else None


def laid_aside(weight: Tensor, device: torch.device) -> Tensor:
    """Return ``weight`` where it can wait for its use on ``device``; OperatorError when its file cannot be written."""
    return _mapped(weight) if waits_in_files(device.type) else weight.cpu()


def _mapped(weight: Tensor) -> Tensor:
    """Return a copy mapped from a temporary file, whose space is freed with the tensor."""
    plain = weight.detach().cpu().contiguous()
    doing, advice = f"write the weights that wait to {temporary_folder()}", ". TMPDIR names another folder"
    with disk.os_errors(doing, advice), tempfile.NamedTemporaryFile(prefix="sfnode-weight-") as file:
        file.write(plain.view(-1).view(torch.uint8).numpy().data)  # written: no later write can fail
        file.flush()
        flat = torch.from_file(file.name, shared=True, size=plain.numel(), dtype=plain.dtype)
    return flat.view(plain.shape)
