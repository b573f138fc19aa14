"""Tiny random models of three architectures, a word-level tokenizer, and manifests that fit them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from protocol.run.manifest import Manifest, checked
from protocol.schema import to_plain
from sfnode.training.model.tensor_groups import TensorGroup, trainable_tensors
from tests.support.manifests import manifest_data

VOCABULARY = 48
WORDS = ("bad", "good", "a", "film", "was", "it", "not", "very", "dull", "bright")


def tiny_opt() -> PreTrainedModel:
    """Two layers of width 16, tied head."""
    torch.manual_seed(1)
    config = OPTConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, ffn_dim=32, num_attention_heads=2,
        max_position_embeddings=32, word_embed_proj_dim=16, dropout=0.1,
    )  # fmt: skip
    return lively(OPTForCausalLM(config))


def tiny_gpt2() -> PreTrainedModel:
    """Conv1D layers (transposed weights), tied head."""
    torch.manual_seed(2)
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    return lively(GPT2LMHeadModel(config))


def tiny_llama(*, tied: bool = False) -> PreTrainedModel:
    """RMSNorm, gated MLP, grouped attention; head untied unless asked."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=tied, attention_bias=True,
    )  # fmt: skip
    return lively(LlamaForCausalLM(config))


def lively(model: Any) -> PreTrainedModel:
    """Random values in every parameter (zeros and ones would hide faults), double precision, dropout off."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    result: PreTrainedModel = model.double().eval().requires_grad_(False)
    return result


def panicking(tokenizer: Any) -> PreTrainedTokenizerBase:
    """The tokenizer, which from now on panics over the tokens of every text."""
    strip = decoders.Strip("m", 0, 2)  # reads before the beginning of a token that is shorter
    tokenizer.backend_tokenizer.decoder = decoders.Sequence([decoders.Replace(Regex(".+"), "m"), strip])
    return tokenizer


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token per word, no special tokens before the text."""
    words = {word: index + 3 for index, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel({"<pad>": 0, "<unk>": 1, **words}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made: Any = PreTrainedTokenizerFast  # carries no types
    result: PreTrainedTokenizerFast = made(tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>")
    return result


def model_manifest(
    model: PreTrainedModel, groups: Sequence[TensorGroup], *, task: dict[str, Any] | None = None, **method: Any
) -> Manifest:
    """A manifest that trains ``groups`` of ``model``."""
    data = manifest_data(**method)
    data["tensors"] = to_plain(trainable_tensors(model, groups), as_rows=False)
    data["task"] |= {"template": "{sentence} it was", "label_words": ["bad", "good"], "batch_rows": 8, **(task or {})}
    return checked(data)


def write_reviews(path: Path) -> Path:
    """Sixteen examples of different lengths."""
    lines = [
        json.dumps({"sentence": " ".join([*["a very"] * (index % 4), WORDS[index % 2 + 8]]), "label": index % 2})
        for index in range(16)
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path
