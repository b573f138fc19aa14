"""Small models on disk, a run that trains them, and a state of that run: what the export tests share."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, OPTConfig, PretrainedConfig, PreTrainedModel

from protocol.run.manifest import Manifest, TensorSpec
from protocol.schema import to_plain
from protocol.state.coefficients import Coefficients, view_exp
from protocol.subspace.directions import basis
from sfnode.demo import model_folder
from sfnode.model_files.model_folder import ModelFolder
from sfnode.training.model.tensor_groups import DEFAULT_GROUPS, TensorGroup, trainable_tensors
from sfnode.training.model.weights_digest import load_described
from tests.support.manifests import small_manifest

VOCABULARY = 768  # of the embedded model, whose tokenizer all of these have

CONFIGS: dict[str, PretrainedConfig] = {
    "opt": OPTConfig(
        vocab_size=VOCABULARY, hidden_size=16, word_embed_proj_dim=16, ffn_dim=32, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=64, dropout=0.0,
    ),
    "gpt2": GPT2Config(
        vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=64,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=2, eos_token_id=2,
    ),
    "llama": LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedRun:
    """A run with a state, and the folder of its base model."""

    manifest: Manifest
    coefficients: Coefficients
    base: Path

    def exact_weight(self, index: int, stored: torch.Tensor) -> NDArray[np.float64]:
        """The view of one tensor in float64, straight from its definition (SPEC 4.5)."""
        weight = stored.double().numpy().copy()
        return weight - 2.0 ** view_exp(self.manifest, index) * self.integer_update(index)

    def integer_update(self, index: int) -> NDArray[np.float64]:
        """Sum of U C V^T (a vector: U C) over the epochs, as integers, which float64 holds exactly."""
        tensor, total = self.manifest.tensors[index], np.zeros(1, dtype=np.int64)
        for epoch in self.coefficients.epochs():
            space = basis(self.manifest.run_id, epoch, index, tensor, self.manifest.method.rank)
            core = self.coefficients.layout.tensor(self.coefficients.flat(epoch), index)
            left = space.u.astype(np.int64) @ core
            total = total + (left if space.v is None else left @ space.v.T.astype(np.int64))
        return total.astype(np.float64)


def save_base(family: str | PretrainedConfig, folder: Path) -> Path:
    """Write a tiny model of the family or config, with weights so large that every layer matters, and a tokenizer."""
    config = CONFIGS[family] if isinstance(family, str) else family
    torch.manual_seed(7)  # without it the run's id, and with it all rounding by chance, was another in each process
    model = AutoModelForCausalLM.from_config(config)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.empty_like(parameter).normal_(std=0.1, generator=generator))
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(model_folder() / name, folder / name)
    return folder


def trained_run(
    base: Path,
    *,
    groups: Sequence[TensorGroup] = DEFAULT_GROUPS,
    magnitude: int = 1000,
    epochs: Sequence[int] = (0, 2),
    only: str = "",
) -> TrainedRun:
    """A run on `base` with random coefficients up to `magnitude`; `only` keeps the tensors whose name has that part."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    tensors = tuple(tensor for tensor in trainable_tensors(model, groups) if only in tensor.name)
    manifest = _manifest(base, tensors, magnitude)
    coefficients = Coefficients(manifest)
    random = np.random.default_rng(11)
    for epoch in epochs:
        coefficients.set_flat(epoch, random.integers(-magnitude, magnitude + 1, coefficients.layout.size))
    return TrainedRun(manifest=manifest, coefficients=coefficients, base=base)


def _manifest(base: Path, tensors: tuple[TensorSpec, ...], magnitude: int) -> Manifest:
    """A manifest whose alpha makes entries of about 0.1 out of coefficients of that magnitude."""
    spec = load_described(ModelFolder(path=base, id=f"local:{base.name}", revision=""))[1]
    plain = {"model": to_plain(spec, as_rows=False), "tensors": to_plain(tensors, as_rows=False)}
    return small_manifest(rank=4, alpha_exp=-(magnitude.bit_length() + 5), **plain)
