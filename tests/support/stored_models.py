"""Models as they lie on people's disks: a folder with pickles, a hub's cache, a GGUF file, a wheel with one inside."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from protocol.errors import OperatorError
from sfnode import demo
from sfnode.children.child_program import Program
from sfnode.model_files import conversion
from sfnode.model_files.conversion import WeightForm
from sfnode.model_files.model_folder import PICKLE_FILE, PICKLE_INDEX_FILE, SINGLE_FILE, TOKENIZER_FILES
from sfnode.training.conversion import from_gguf, from_pickles, from_quantised
from sfnode.training.conversion.process import convert

COMMIT: Final = "27dcfa74d334bc871f3234de431e71c6eeba5dd6"
HUB_ID: Final = "facebook/opt-tiny"


def demo_tensors() -> dict[str, Tensor]:
    """The embedded model's, under the names that its file gives them."""
    return load_file(demo.model_folder() / SINGLE_FILE)


def as_of_opt(tensors: Mapping[str, Tensor], begin: str = "decoder.") -> dict[str, Tensor]:
    """The same, named as in the hub's OPT files: "decoder...." or "model.decoder....", with or without a head."""
    return {name.replace("model.decoder.", begin, 1): tensor for name, tensor in tensors.items()}


def pickled_folder(folder: Path, tensors: Mapping[str, Any]) -> Path:
    """A model folder with config.json, the embedded model's tokenizer and these tensors in pytorch_model.bin."""
    _without_weights(folder)
    torch.save(dict(tensors), folder / PICKLE_FILE)
    return folder


def sharded_folder(folder: Path, tensors: Mapping[str, Tensor]) -> Path:
    """The same in two files with an index."""
    _without_weights(folder)
    names = sorted(tensors)
    files = {"pytorch_model-00001-of-00002.bin": names[::2], "pytorch_model-00002-of-00002.bin": names[1::2]}
    for file, held in files.items():
        torch.save({name: tensors[name] for name in held}, folder / file)
    weight_map = {name: file for file, held in files.items() for name in held}
    (folder / PICKLE_INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def _without_weights(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in ("config.json", *TOKENIZER_FILES):
        if (demo.model_folder() / name).is_file():
            shutil.copy(demo.model_folder() / name, folder / name)


def hub_cache(cache: Path, folder: Path) -> Path:
    """The cache of the hub's own library, which has downloaded the files of ``folder`` as HUB_ID; the snapshot."""
    model = cache / f"models--{HUB_ID.replace('/', '--')}"
    snapshot = model / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (model / "blobs").mkdir()
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT)
    for number, file in enumerate(sorted(folder.iterdir())):
        shutil.copy(file, model / "blobs" / str(number))
        (snapshot / file.name).symlink_to(Path("../../blobs") / str(number))
    return snapshot


# --- GGUF

_TOKENS: Final = ["<unk>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz", "Ġ", "th", "the", "Ġthe"]
_MERGES: Final = ["t h", "th e", "Ġ the"]


def gguf_model(path: Path, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Write a tiny Llama as GGUF, weights in fp32 or fp16; returns its tensors under transformers' names."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(_TOKENS), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=64,
    )  # fmt: skip
    model: Any = LlamaForCausalLM(config)
    tensors: dict[str, Tensor] = {name: value.to(dtype) for name, value in model.state_dict().items()}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(_TOKENS)
    writer.add_token_merges(_MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    for name, value in tensors.items():
        stored = _interleaved(value) if name.endswith(("q_proj.weight", "k_proj.weight")) else value
        own = names.get_name(name.removesuffix(".weight"))
        writer.add_tensor(f"{own}.weight", stored.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def _interleaved(value: Tensor) -> Tensor:
    """As llama.cpp stores queries and keys: the halves of each head's rotations side by side."""
    rows, columns = value.shape
    return value.view(4, 2, rows // 8, columns).transpose(1, 2).reshape(rows, columns).contiguous()


def raw_gguf(fields: bytes = b"", tensors: bytes = b"", *, counts: tuple[int, int] = (0, 0)) -> bytes:
    """A GGUF file of these parts: number of tensors and of fields, then both."""
    return b"GGUF" + np.array([3], "<u4").tobytes() + np.array(counts, "<u8").tobytes() + fields + tensors


def wheel(path: Path, files: Mapping[str, bytes | Path]) -> Path:
    """A wheel with these files."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content.read_bytes() if isinstance(content, Path) else content)
    return path


# --- conversion in the test's own process: the same code, without the limits and the seconds of a process of its own


def convert_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From now on; returns the list of what is converted, which grows."""
    converted: list[str] = []

    def run(program: Program, _folder: Path, *_of_watching: object) -> tuple[int, str]:
        form, source, out = program.arguments
        converted.append(form)
        try:
            convert(WeightForm(form), Path(source), Path(out))
        except OperatorError as error:
            return 3, str(error)
        return 0, ""

    monkeypatch.setattr(conversion, "run_watched", run)
    without_limits(monkeypatch)
    return converted


def without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own process keeps its memory."""
    for module in (from_gguf, from_pickles, from_quantised):
        monkeypatch.setattr(module, "allow", lambda **_limits: None)
