"""Write the update of a run as a LoRA adapter for PEFT or llama.cpp, without any rounding.

A tensor's update is -2^k sum_e U_e C_e V_e^T. It is low-rank already, so no decomposition is needed. One
factor has the basis's small integers; the other is an integer matrix times a power of two, split into float32 parts
that add up to it exactly.

llama.cpp reads one GGUF file, whose tensors have the names and orders of its models. Source of that format:
https://github.com/ggml-org/llama.cpp, convert_lora_to_gguf.py and src/llama-adapter.cpp
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightRenaming, rename_source_key
from transformers.pytorch_utils import Conv1D

from protocol.errors import OperatorError
from protocol.run import Manifest
from protocol.state import CoefficientLayout, Coefficients, Int64Array, view_exp
from protocol.subspace import Bases
from sfnode.training.export.hugging_face_folder import check_tensors, fresh_folder, origin_of
from sfnode.training.model import ParameterPlace, check_model, loading, perturbed, places

_LOCAL_IDS = ("embedded:", "local:", "pypi:")  # of models that are on no hub

Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]

Factors = tuple[Tensor, Tensor]  # A: (rank, inputs), B: (outputs, rank); the update is B @ A

# Layers that PEFT takes for parts of experts in models that have them, wherever they are: it passes them over unless
# their weights are named as parameters.
_TAKEN_FOR_EXPERTS = (".gate.weight", ".gate_proj.weight", ".up_proj.weight", ".down_proj.weight")

# Layers that PEFT adapts in no model of these kinds (_check_lora_target_modules_mamba in peft/tuners/tuners_utils.py)
_REFUSED = ("out_proj", "conv1d")
_REFUSED_IN = ("falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h")

# Kind of model in transformers -> llama.cpp's. Only those that were compared with it (docs/evaluate_export.md).
_KINDS = {"llama": gguf.MODEL_ARCH.LLAMA, "mistral": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2}
# Layers -> the field with their heads, in each of which models of kind LLAMA interleave the outputs of both halves.
_REORDERED = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}


def export_adapter(
    bases: Bases,
    coefficients: Coefficients,
    base_folder: Path,
    out_folder: Path,
    force: bool = False,
    is_gguf: bool = False,
) -> None:
    """Write a LoRA adapter that `PeftModel.from_pretrained` loads on the base model: exactly the run's update.

    ``is_gguf``: one that llama.cpp loads on the base model in its own form, as the file adapter.gguf.

    Its rank is the run's rank times the number of epochs that differ in their basis. It is twice or three times that
    when coefficients are so large that float32 needs two or three parts for them. Its scaling is 1.

    OperatorError: a tensor is trained that LoRA cannot hold (a bias, norm or embedding), llama.cpp has no
    model of this kind, PEFT would not find a layer or refuses it, or as `export_model`.
    """
    manifest = bases.manifest
    check_model(base_folder, manifest.model)
    model = loading.empty_model(base_folder)
    layers = _linear_layers(manifest, model)
    targets = {} if is_gguf else _targets(layers, model)
    origin = origin_of(manifest, coefficients, base_folder)
    with fresh_folder(out_folder, origin, force=force, read=(base_folder,)) as part:
        factors: dict[str, Factors] = {}
        for layer, update in zip(layers, low_rank_updates(bases, coefficients), strict=True):
            # PEFT wants `lora_B @ lora_A` of the shape (outputs, inputs); GPT-2's Conv1D stores the transpose.
            left, right = map(torch.from_numpy, update)
            is_stored_so = isinstance(layer.module, Conv1D) and not manifest.method.is_dense
            b, a = (right.T, left.T) if is_stored_so else (left, right)
            factors[_module_name(layer)] = (a.contiguous(), b.contiguous())
        if is_gguf:
            write_gguf_adapter(factors, model.config.to_dict(), part / "adapter.gguf")
            return
        sides = [(name, side, each) for name, pair in factors.items() for side, each in zip("AB", pair, strict=True)]
        tensors = {f"base_model.model.{name}.lora_{side}.weight": each for name, side, each in sides}
        save_file(tensors, part / "adapter_model.safetensors", metadata={"format": "pt"})
        config = _adapter_config(manifest, base_folder, layers, rank=len(sides[0][2])) | targets
        (part / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _linear_layers(manifest: Manifest, model: PreTrainedModel) -> tuple[ParameterPlace, ...]:
    """Return the layer of each tensor of the run; OperatorError when one is not the weight of a linear layer."""
    known = places(model)
    check_tensors(manifest, known)
    for tensor in manifest.tensors:
        place = known[tensor.name]
        if place.attribute != perturbed.WEIGHT or not isinstance(place.module, nn.Linear | Conv1D):
            raise OperatorError(
                f"tensor {tensor.name} is trained, but a LoRA adapter holds weights of linear layers only: export the "
                "whole model instead"
            )
    return tuple(known[tensor.name] for tensor in manifest.tensors)


def _adapter_config(
    manifest: Manifest, base_folder: Path, layers: tuple[ParameterPlace, ...], rank: int
) -> dict[str, object]:
    is_local = manifest.model.id.startswith(_LOCAL_IDS)
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
    }


def _targets(layers: Sequence[ParameterPlace], model: PreTrainedModel) -> dict[str, object]:
    """Return the layers that PEFT adapts, by full names: it matches whole path ends. OperatorError: it cannot.

    PEFT renames what it reads, as transformers renames the tensors of files.
    """
    steps = get_model_conversion_mapping(model)
    renamings = [step for step in steps if isinstance(step, WeightRenaming)]
    kind = model.config.model_type
    for layer in layers:
        name = _module_name(layer)
        is_refused = kind in _REFUSED_IN and name.rpartition(".")[2] in _REFUSED
        if is_refused or rename_source_key(layer.name, renamings, [])[0] != layer.name:
            fault = "refuses" if is_refused else "would not find"
            raise OperatorError(f"PEFT {fault} layer {name} in models of {kind}: export the whole model instead")
    has_experts = any("experts" in name for step in steps for name in step.target_patterns)
    named = [layer.name for layer in layers if has_experts and layer.name.endswith(_TAKEN_FOR_EXPERTS)]
    modules = [_module_name(layer) for layer in layers if layer.name not in named]
    return {"target_modules": modules, **({"target_parameters": named} if named else {})}


def _module_name(layer: ParameterPlace) -> str:
    return layer.name.removesuffix(f".{perturbed.WEIGHT}")


def low_rank_updates(bases: Bases, coefficients: Coefficients) -> list[tuple[Float32Array, Float32Array]]:
    """Return the exact updates of all tensors of the run, which must be matrices, all of the same rank R.

    An update is `left @ right`, in the shape of the stored parameter, or its transpose if so stored: float32[rows, R],
    -2^k U C, epoch by epoch, part by part; and float32[R, cols], V^T of each, once for each part.

    R = rank x epochs x parts: one part where every |U C| <= 2^24, two below 2^48, three
    otherwise (their bound is 2^53). The steps of a dense core count as one epoch. A run without an update has one
    epoch of zeros.
    """
    cores = [(epoch, coefficients.core(epoch)) for epoch in coefficients.epochs() or (0,)]
    if bases.manifest.method.is_dense:  # SPEC 4.7 bounds the sum of all steps
        cores = [(0, np.sum([core for _, core in cores], axis=0))]
    exact = [_exact_factors(bases, coefficients.layout, index, cores) for index in range(len(bases.manifest.tensors))]
    split = [float32_parts(left) for left, _ in exact]
    parts = max(map(len, split))
    return [
        (np.hstack([*lefts, *[np.zeros_like(lefts[0])] * (parts - len(lefts))]), np.tile(right, (parts, 1)))
        for lefts, (_, right) in zip(split, exact, strict=True)
    ]


def float32_parts(values: Float64Array) -> list[Float32Array]:
    """Split `values` into at most three float32 arrays of exactly that sum. OperatorError: float32 cannot hold it."""
    with np.errstate(over="ignore", invalid="ignore"):
        parts = [values.astype(np.float32)]
        while (rest := values - sum(part.astype(np.float64) for part in parts)).any():
            if len(parts) == 3:
                raise OperatorError("the update has numbers that float32 cannot hold: export the whole model instead")
            parts.append(rest.astype(np.float32))
    return parts


def _exact_factors(
    bases: Bases, layout: CoefficientLayout, index: int, cores: Sequence[tuple[int, Int64Array]]
) -> tuple[Float64Array, Float32Array]:
    """Return -2^k U C, float64[rows, r epochs], and their V^T, float32[r epochs, cols].

    Exact: |U C| < 2^53 (SPEC 4.5).
    """
    scale = 2.0 ** view_exp(bases.manifest, index)
    lefts, rights = [], []
    for epoch, core in cores:
        space = bases.of(epoch, index)
        assert space.v is not None, "a vector has no low-rank factors"
        values_rr = layout.tensor(core, index).astype(np.float64)
        lefts.append(space.u.astype(np.float64) @ values_rr * -(scale * 2.0**space.exp))
        rights.append(space.v.T.astype(np.float32))
    return np.hstack(lefts), np.vstack(rights)


def write_gguf_adapter(factors: Mapping[str, Factors], config: Mapping[str, object], out: Path) -> None:
    """Write the factors of layers, by their names in transformers. Its scaling is 1.

    ``config``: all fields of the model, those that its config.json leaves out, too.

    OperatorError: the model, or a layer, is none that llama.cpp is known to have.
    """
    kind = _KINDS.get(str(config.get("model_type")))
    if kind is None:
        raise OperatorError(
            f"an adapter in llama.cpp's form can be written for models of {', '.join(sorted(_KINDS))}; this one is of "
            f"{config.get('model_type')}. --format peft writes one for PEFT, --format model the whole model"
        )
    names = gguf.get_tensor_name_map(kind, int(str(config["num_hidden_layers"])))
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[kind])
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    rank = next(iter(factors.values()))[0].shape[0]
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(rank))  # llama.cpp multiplies by alpha / rank
    for layer, (a, b) in factors.items():
        name = names.get_name(f"{layer}.weight", try_suffixes=(".weight",))
        if name is None:
            raise OperatorError(f"llama.cpp has no tensor for layer {layer}: export the whole model instead")
        ordered = b
        if kind is gguf.MODEL_ARCH.LLAMA and (field := _REORDERED.get(layer.rpartition(".")[2])):
            heads = int(str(config[field]))
            ordered = b.view(heads, 2, -1, rank).transpose(1, 2).reshape(b.shape).contiguous()
        writer.add_tensor(f"{name}.lora_a", a.numpy())
        writer.add_tensor(f"{name}.lora_b", ordered.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
