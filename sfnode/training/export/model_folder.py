"""Write the trained model for other programs: a Hugging Face folder, or a LoRA adapter for PEFT.

Both hold exactly the update that the run's integers state. The folder rounds each weight once, to the requested dtype,
as a node of that dtype does; the adapter does not round at all (`adapter.py`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from protocol.errors import OperatorError
from protocol.run import Manifest
from protocol.state import Coefficients
from protocol.subspace import Bases
from sfnode.training.export.adapter import LowRankUpdate, low_rank_updates
from sfnode.training.export.out_folder import fresh_folder
from sfnode.training.model import (
    ParameterPlace,
    check_model,
    check_whole_fits,
    fold_weights,
    loading,
    perturbed,
    places,
    spec_of,
)

_LOCAL_IDS: Final = ("embedded:", "local:")  # of models that are on no hub


def export_model(
    bases: Bases,
    coefficients: Coefficients,
    base_folder: Path,
    out_folder: Path,
    dtype: torch.dtype = torch.float32,
    force: bool = False,
) -> None:
    """Write a folder that `AutoModelForCausalLM.from_pretrained` loads: config, safetensors, tokenizer.

    Weights are the view of `coefficients` on a node with weights in `dtype`. In 16 bits they are rounded up or down in
    proportion, since rounding to the nearest would lose most of a small update. Needs about 4 bytes of memory per
    parameter, or 2.

    OperatorError: the base model is not the run's, or larger than main memory; `out_folder` is not empty (without
    `force`), holds the base model or foreign files, or cannot be written. The folder is then unchanged.
    """
    manifest = bases.manifest
    check_whole_fits(base_folder)
    check_model(base_folder, manifest.model)
    origin = _origin(manifest, coefficients)
    with fresh_folder(out_folder, origin, force=force, read=(base_folder,)) as part:
        model = loading.load_causal_lm(base_folder, torch.device("cpu"), dtype)
        _check_tensors(manifest, places(model))
        # The view of the coefficients goes into the model's own parameters, so that tied ones follow.
        parameters = dict(model.named_parameters())
        epochs = {epoch: coefficients.flat(epoch) for epoch in coefficients.epochs()}
        with torch.no_grad():
            for name, weight in fold_weights(bases, epochs, parameters).items():
                parameters[name].copy_(weight)
        model.save_pretrained(part)
        for file in manifest.model.tokenizer:
            shutil.copyfile(base_folder / file.name, part / file.name)


def export_adapter(
    bases: Bases, coefficients: Coefficients, base_folder: Path, out_folder: Path, force: bool = False
) -> None:
    """Write a LoRA adapter that `PeftModel.from_pretrained` loads on the base model: exactly the run's update.

    Its rank is the sum of the ranks of all starts, plus the run's rank times the number of epochs. It is twice or three
    times that when coefficients are so large that float32 needs two or three parts for them. Its scaling is 1.

    OperatorError: a tensor is trained that LoRA cannot hold (a bias, norm or embedding), or as `export_model`.
    """
    manifest = bases.manifest
    check_model(base_folder, manifest.model)
    layers = _linear_layers(manifest, base_folder)
    origin = _origin(manifest, coefficients)
    with fresh_folder(out_folder, origin, force=force, read=(base_folder,)) as part:
        factors: dict[str, Tensor] = {}
        updates = low_rank_updates(bases, coefficients)
        for layer, update in zip(layers, updates, strict=True):
            # PEFT wants `lora_B @ lora_A` of the shape (outputs, inputs); GPT-2's Conv1D stores the transpose.
            left, right = torch.from_numpy(update.left), torch.from_numpy(update.right)
            b, a = (right.T, left.T) if isinstance(layer.module, Conv1D) else (left, right)
            prefix = f"base_model.model.{_module_name(layer)}"
            factors |= {f"{prefix}.lora_A.weight": a.contiguous(), f"{prefix}.lora_B.weight": b.contiguous()}
        save_file(factors, part / "adapter_model.safetensors", metadata={"format": "pt"})
        config = _adapter_config(manifest, base_folder, layers, updates[0])
        (part / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _linear_layers(manifest: Manifest, base_folder: Path) -> tuple[ParameterPlace, ...]:
    """Return the layer of each tensor of the run; OperatorError when one is not the weight of a linear layer."""
    known = places(loading.skeleton(base_folder))
    _check_tensors(manifest, known)
    for tensor in manifest.tensors:
        place = known[tensor.name]
        if place.attribute != perturbed.WEIGHT or not isinstance(place.module, nn.Linear | Conv1D):
            raise OperatorError(
                f"tensor {tensor.name} is trained, but a LoRA adapter holds weights of linear layers only: export the "
                "whole model instead"
            )
    return tuple(known[tensor.name] for tensor in manifest.tensors)


def _check_tensors(manifest: Manifest, known: Mapping[str, ParameterPlace]) -> None:
    for tensor in manifest.tensors:
        if tensor.name not in known or spec_of(known[tensor.name]) != tensor:
            raise OperatorError(f"tensor {tensor.name}: the model has none of that name and shape that can be trained")


def _adapter_config(
    manifest: Manifest, base_folder: Path, layers: tuple[ParameterPlace, ...], update: LowRankUpdate
) -> dict[str, object]:
    is_local = manifest.model.id.startswith(_LOCAL_IDS)
    rank = update.right.shape[0]
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base_folder.resolve()) if is_local else manifest.model.id,
        "revision": manifest.model.revision or None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": rank,  # PEFT multiplies by lora_alpha / r
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": any(isinstance(layer.module, Conv1D) for layer in layers),
        "target_modules": [_module_name(layer) for layer in layers],  # full names: PEFT matches whole path ends
    }


def _module_name(layer: ParameterPlace) -> str:
    return layer.name.removesuffix(f".{perturbed.WEIGHT}")


def _origin(manifest: Manifest, coefficients: Coefficients) -> dict[str, object]:
    return {
        "run": manifest.name,
        "run_id": manifest.run_id.hex(),
        "state_digest": coefficients.digest().hex(),
        "base_model": manifest.model.id,
        "base_revision": manifest.model.revision,
        "kind": manifest.task.kind.value,
        "template": manifest.task.template,
        "completion": manifest.task.completion,
        "label_words": list(manifest.task.label_words),
        "max_tokens": manifest.task.max_tokens,
    }
