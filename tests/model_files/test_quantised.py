"""Weights in 4 and 8 bits become 16-bit numbers by transformers' own operations, once; other formats are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from protocol.errors import OperatorError
from sfnode import demo
from sfnode.model_files.model_folder import ModelFolder
from sfnode.model_files.resolve import find_model_folder, resolve_model
from sfnode.training.model.tensor_groups import trainable_tensors
from sfnode.training.model.weights_digest import check_model, load_described
from tests.support.stored_models import convert_here

_SHAPE: Final = {
    "vocab_size": 768, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "hidden_size": 32,
    "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}  # fmt: skip
_EXPERTS: Final = {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 8}
# E2M1, by the Open Compute Project's specification of microscaling formats: sign, two bits of exponent, one of mantissa
_E2M1: Final = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
_BLOCK: Final = 16


@pytest.fixture(autouse=True)
def converted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What has been converted in this test, into a cache of its own."""
    monkeypatch.setenv("SFNODE_MODELS", str(tmp_path / "models"))
    return convert_here(monkeypatch)


def saved(folder: Path, kind: str, **fields: Any) -> dict[str, Tensor]:
    """Save a random model with the demo's tokenizer; return its tensors."""
    torch.manual_seed(1)
    make: Any = AutoModelForCausalLM  # carries no types
    make.from_config(AutoConfig.for_model(kind, **_SHAPE, **fields)).bfloat16().save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(demo.model_folder() / name, folder)
    return load_file(folder / "model.safetensors")


def quantise(folder: Path, tensors: dict[str, Tensor], **how: Any) -> None:
    """Replace the weights, and say in config.json how they are quantised."""
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": how}))


def mxfp4_model(folder: Path) -> dict[str, Tensor]:
    """Experts in 4 bits with a power of two for each 32, as of gpt-oss; return what they stand for."""
    tensors = saved(folder, "gpt_oss", **_EXPERTS)
    meant = {}
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8)
        scales = torch.randint(120, 128, (experts, outputs, inputs // 32), dtype=torch.uint8)
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        halves = torch.stack([blocks & 15, blocks >> 4], dim=-1).flatten(-2).long()  # the low half comes first
        values = _E2M1[halves & 7] * (1 - 2 * (halves >> 3)) * 2.0 ** (scales.double() - 127)[..., None]
        meant[name] = values.flatten(-2).transpose(1, 2).float()
    quantise(folder, tensors, quant_method="mxfp4", modules_to_not_convert=["lm_head"])
    return meant


def fp8_model(folder: Path) -> dict[str, Tensor]:
    """Linear layers in 8 bits with a number for each block; return what they stand for."""
    tensors, meant = saved(folder, "llama"), {}
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        rows, cols = tensors[name].shape
        blocks = tensors[name].float().view(rows // _BLOCK, _BLOCK, cols // _BLOCK, _BLOCK)
        scales = blocks.abs().amax(dim=(1, 3)) / 448
        narrow = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
        tensors |= {name: narrow.view(rows, cols), f"{name}_scale_inv": scales}
        meant[name] = (narrow.float() * scales[:, None, :, None]).view(rows, cols).bfloat16().float()
    quantise(folder, tensors, quant_method="fp8", weight_block_size=[_BLOCK, _BLOCK], activation_scheme="dynamic")
    return meant


@pytest.mark.parametrize("make", [mxfp4_model, fp8_model])
def test_resolve_model__weights_of_4_or_8_bits__become_the_numbers_that_they_stand_for(
    make: Any, tmp_path: Path, converted: list[str]
) -> None:
    """A fault once: "asks for code from elsewhere", although many run gpt-oss so."""
    meant = make(tmp_path / "model")
    assert find_model_folder(str(tmp_path / "model"), "") is None
    found = resolve_model(str(tmp_path / "model"))
    assert resolve_model(str(tmp_path / "model")) == found and converted == ["quantised"]
    assert "quantization_config" not in json.loads((found.path / "config.json").read_text())
    model, spec = load_described(found)
    check_model(found.path, spec)
    parameters = dict(model.named_parameters())
    assert meant and all(torch.equal(parameters[name], values) for name, values in meant.items())
    assert trainable_tensors(model)


def test_resolve_model__quantised_weights_that_lack_a_tensor__are_refused(tmp_path: Path) -> None:
    fp8_model(tmp_path / "model")
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(OperatorError, match=r"the weights lack model\.norm\.weight"):
        resolve_model(str(tmp_path / "model"))


def test_resolve_model__config_of_a_larger_model_than_the_files__is_refused(tmp_path: Path) -> None:
    fp8_model(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "vocab_size": 1 << 22}))
    with pytest.raises(OperatorError, match="larger than its files"):
        resolve_model(str(tmp_path / "model"))


def test_resolve_model__format_that_is_not_decoded__is_left_as_it_is_and_refused_at_loading(tmp_path: Path) -> None:
    quantise(tmp_path / "model", saved(tmp_path / "model", "llama"), quant_method="awq", bits=4)
    found = resolve_model(str(tmp_path / "model"))
    assert found == ModelFolder(path=(tmp_path / "model").resolve(), id="local:model", revision="")
    with pytest.raises(OperatorError, match=r"quantised \(awq\)"):
        load_described(found)
