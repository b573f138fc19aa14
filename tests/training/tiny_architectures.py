"""Tiny random models, one for each way in which causal language models differ: by name, in double precision."""

from __future__ import annotations

from typing import Any, Final

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from tests.support.tiny_models import VOCABULARY, lively

_SPECIAL: Final = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_LLAMA: Final = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 32,
}  # fmt: skip
_GPT2: Final = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
_OPT: Final = {
    "hidden_size": 16, "num_hidden_layers": 2, "ffn_dim": 32, "num_attention_heads": 2, "max_position_embeddings": 32,
    "word_embed_proj_dim": 16,
}  # fmt: skip
_NEOX: Final = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 32,
}  # fmt: skip
_MAMBA: Final = {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4}
_BART: Final = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "max_position_embeddings": 32,
}  # fmt: skip
_BERT: Final = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "is_decoder": True,
}  # fmt: skip

# name -> (model type, what differs from the defaults)
ARCHITECTURES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "opt": ("opt", {**_OPT, "dropout": 0.1}),  # learned positions, tied head, biases, tokens flattened in the MLP
    "opt-350m": ("opt", {**_OPT, "word_embed_proj_dim": 8, "do_layer_norm_before": False}),  # projections beside it
    "gpt2": ("gpt2", _GPT2),  # Conv1D: transposed weights, fused QKV
    "llama": ("llama", {**_LLAMA, "attention_bias": True, "mlp_bias": True}),  # RMSNorm, grouped queries, untied head
    "llama-tied": ("llama", {**_LLAMA, "tie_word_embeddings": True}),
    "qwen2": ("qwen2", {**_LLAMA, "tie_word_embeddings": True}),  # biases on QKV only
    "qwen3": ("qwen3", {**_LLAMA, "head_dim": 8}),  # a norm of each head
    "mistral": ("mistral", {**_LLAMA, "sliding_window": 4, "head_dim": 4}),
    "gemma": ("gemma", {**_LLAMA, "head_dim": 8}),  # scaled embeddings, norms of 1 + weight
    "gemma2": ("gemma2", {**_LLAMA, "head_dim": 8, "sliding_window": 4, "final_logit_softcapping": 2.0}),
    "gemma3": (
        "gemma3_text",  # a norm of each head, heads before tokens
        {**_LLAMA, "head_dim": 8, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "gpt-neox": ("gpt_neox", _NEOX),  # fused QKV, parallel residual, untied head
    "phi": ("phi", _LLAMA),  # parallel residual with one norm, a head with a bias
    "phi3": ("phi3", _LLAMA),  # fused QKV, fused gate and up
    "bloom": ("bloom", {"hidden_size": 16, "n_layer": 2, "n_head": 2}),  # a norm after the embedding, no positions
    "falcon": ("falcon", {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "multi_query": True}),
    "stablelm": ("stablelm", _LLAMA),
    "olmo2": ("olmo2", _LLAMA),  # norms after the layers
    "granite": ("granite", {**_LLAMA, "logits_scaling": 8.0, "embedding_multiplier": 12.0}),
    "cohere": ("cohere", {**_LLAMA, "logit_scale": 0.25}),
    "mixtral": ("mixtral", {**_LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "mamba": ("mamba", _MAMBA),
    "bart": ("bart", _BART),
    "bert": ("bert", _BERT),
}


def tiny_model(name: str) -> PreTrainedModel:
    """The model called ``name``, every parameter random."""
    torch.manual_seed(1)
    kind, changes = ARCHITECTURES[name]
    make: Any = AutoModelForCausalLM.from_config  # carries no types
    # Experts in plain loops: the fused ones know no double precision. Elsewhere the choice means nothing.
    eager = {"experts_implementation": "eager"} if "num_local_experts" in changes else {}
    return lively(make(AutoConfig.for_model(kind, **_SPECIAL, **changes), **eager))
