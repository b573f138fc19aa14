"""The adapter in llama.cpp's form: its names, its orders of rows, and the same numbers as PEFT's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from numpy.typing import NDArray
from safetensors.numpy import load_file
from transformers import LlamaConfig

from protocol.errors import OperatorError
from protocol.subspace.basis_file import Bases
from sfnode.training.export.adapter import export_adapter
from tests.training.exports import CONFIGS, save_base, trained_run

_NAMES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
          "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}  # fmt: skip


def as_llama_cpp_orders(update: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Row by row: the first of each head's first half, the first of its second half, the second of its first half..."""
    size = len(update) // heads
    rows = [head * size + half * size // 2 + at for head in range(heads) for at in range(size // 2) for half in (0, 1)]
    return update[rows]


def test_gguf_adapter__of_a_llama__holds_the_update_in_llama_cpps_names_and_orders(tmp_path: Path) -> None:
    config = CONFIGS["llama"]
    run = trained_run(save_base(config, tmp_path / "base"))
    for folder, is_gguf in (("peft", False), ("gguf", True)):
        export_adapter(Bases(run.manifest), run.coefficients, run.base, tmp_path / folder, is_gguf=is_gguf)
    factors = load_file(tmp_path / "peft" / "adapter_model.safetensors")
    assert {path.name for path in (tmp_path / "gguf").iterdir()} == {"adapter.gguf", "sfnode.json"}
    reader = GGUFReader(tmp_path / "gguf" / "adapter.gguf")
    said = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    rank = float(next(each.shape[0] for name, each in factors.items() if "lora_A" in name))
    assert said == {"general.architecture": "llama", "general.type": "adapter",
                    "adapter.type": "lora", "adapter.lora.alpha": rank}  # fmt: skip
    held = {tensor.name: tensor.data for tensor in reader.tensors}
    assert len(held) == len(factors) == 2 * len(run.manifest.tensors)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    assert heads["k_proj"] < heads["q_proj"]
    for tensor in run.manifest.tensors:
        _, _, number, _, layer, _ = tensor.name.split(".")
        a, b = (factors[f"base_model.model.{tensor.name.removesuffix('.weight')}.lora_{side}.weight"] for side in "AB")
        update = as_llama_cpp_orders(b @ a, heads[layer]) if layer in heads else b @ a
        name = f"blk.{number}.{_NAMES[layer]}.weight"
        assert np.array_equal(held[f"{name}.lora_b"] @ held[f"{name}.lora_a"], update), name


@pytest.mark.parametrize("family", ["opt", "gpt2"])
def test_gguf_adapter__of_a_model_that_was_never_compared__is_refused_and_nothing_is_written(
    family: str, tmp_path: Path
) -> None:
    run = trained_run(save_base(family, tmp_path / "base"))
    with pytest.raises(OperatorError, match=f"models of llama, mistral, qwen2; this one is of {family}"):
        export_adapter(Bases(run.manifest), run.coefficients, run.base, tmp_path / "out", is_gguf=True)
    assert not (tmp_path / "out").exists()


def test_gguf_adapter__fields_that_config_json_leaves_out__are_those_of_transformers(tmp_path: Path) -> None:
    """A KeyError once: transformers' own defaults need not stand in the file."""
    base = save_base(LlamaConfig(vocab_size=768, hidden_size=64, intermediate_size=24), tmp_path / "base")
    config = json.loads((base / "config.json").read_text("utf-8"))
    for name in ("num_hidden_layers", "num_attention_heads", "num_key_value_heads"):
        assert config.pop(name) == 32
    (base / "config.json").write_text(json.dumps(config), "utf-8")
    run = trained_run(base)
    export_adapter(Bases(run.manifest), run.coefficients, run.base, tmp_path / "gguf", is_gguf=True)
    held = {tensor.name for tensor in GGUFReader(tmp_path / "gguf" / "adapter.gguf").tensors}
    assert "blk.31.attn_q.weight.lora_a" in held
