"""Write a LoRA adapter as llama.cpp reads it: one GGUF file, whose tensors have the names and orders of its models.

Source of the format: https://github.com/ggml-org/llama.cpp, convert_lora_to_gguf.py and src/llama-adapter.cpp
"""

from collections.abc import Mapping
from pathlib import Path

import gguf
from torch import Tensor

from protocol.errors import OperatorError

Factors = tuple[Tensor, Tensor]  # A: (rank, inputs), B: (outputs, rank); the update is B @ A

# Kind of model in transformers -> llama.cpp's. Only those that were compared with it (docs/evaluate_export.md).
_KINDS = {"llama": gguf.MODEL_ARCH.LLAMA, "mistral": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2}
# Layers -> the field with their heads, in each of which models of kind LLAMA interleave the outputs of both halves.
_REORDERED = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}


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
