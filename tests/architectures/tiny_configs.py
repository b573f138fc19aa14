"""A tiny configuration of any model type: its defaults, with small numbers by the names of the fields."""

from __future__ import annotations

import re
from typing import Any, Final

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PreTrainedConfig

VOCABULARY: Final = 64
_LAYERS: Final = 4  # two kinds of layers, each twice, or four kinds

# The first that matches the whole name of a number decides. Widths that are not the stream's differ from it.
_NUMBERS: Final[tuple[tuple[str, int], ...]] = (
    (r"pad_token_id", 0),
    (r"bos_token_id", 1),
    (r"eos_token_id|eod_token_id|decoder_start_token_id|forced_eos_token_id", 2),
    (r".*_token_(id|index)", VOCABULARY - 1),
    (r"(decoder_)?vocab_size|vocab_size_per_layer_input|unpadded_vocab_size", VOCABULARY),
    (r"(original_)?max_position_embeddings|n_positions|n_ctx|max_seq_len|context_length", 64),
    (r"max_(source|target)_positions", 64),
    (r"(backbone_)?hidden_size|d_model|n_embd|dim_model|emb_dim|embedding_dim|word_embed_proj_dim|lru_width", 32),
    (r"hidden_size_per_layer_input", 8),
    (r"attention_hidden_size", 64),
    (r".*intermediate_size(_mlp)?|.*ffn_dim|ffn_hidden_size|expert_ffn_hidden_size|feed_forward_size", 48),
    (r"dim_ff|dff|d_ff|d_inner|n_inner", 48),
    (r"num_hidden_layers|num_layers|n_layers?|num_blocks|(num_)?(de|en)coder_layers|depth", _LAYERS),
    (r"(.*_)?num_attention_heads|num_heads|n_heads?|(.*_)?attention_heads|num_query_groups", 4),
    (r"(.*_)?num_key_value_heads|num_kv_heads|linear_num_key_heads", 2),
    (r"linear_num_value_heads|linear_num_heads", 4),
    (r"mamba_n_heads|mamba_num_heads|mamba_d_head|mamba_head_dim", 8),
    (r"(?!attention_)(.*_)?head_dim|dim_head|d_head|d_kv|kv_channels|attention_head_size|query_pre_attn_scalar", 8),
    (r"attention_head_dim", 16),
    (r"(kv|q|o)_lora_rank|.*lowrank|.*_rank", 12),
    (r"index_n_heads", 2),
    (r"adapter_(in|out)_dim|adapter_input_size|vision_output_dim|out_hidden_size", 32),
    (r"ple_embed_dim|ngram_vocab_size_base", 64),
    (r"encoder_hash_byte_group_vocab", 64),
    (r"hidden_size_global", 32),
    (r"num_kv_shared_layers", 0),
    (r"index_topk.*", 4),
    (r"(moe_)?num_(local_)?experts|n_routed_experts|zero_expert_num|num_local_experts", 4),
    (r"num_experts_per_tok(en)?|moe_topk|moe_k", 2),
    (r"n_group|topk_group|num_expert_group|n_groups|mamba_n_groups", 1),
    (r"o_groups", 2),
    (r"sliding_window(_size)?|attention_window_size|attention_chunk_size|local_attention|window_size|block_size", 4),
    (r"(mamba_)?(d_)?state(_size)?|ssm_state_size", 4),
    (r"(mamba_)?chunk_size", 4),
    (r"image_size|crop_size", 28),
    (r"patch_size", 14),
    (r"num_buckets|.*num_buckets", 8),
    (r"rotary_dim|partial_rotary_dim", 4),
)  # fmt: skip

# A drafter reads the keys and values of another model in all of its layers
_ASSISTANT: Final = {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0, "num_kv_shared_layers": _LAYERS}

# What the names do not say: of one model type, or of a part of one
_SPECIAL: Final[dict[str, dict[str, Any]]] = {
    "deepseek_v2": {"num_experts_per_tok": 2},
    "cohere_compass_text": {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 10000.0}, "sliding_attention": None,
        },
    },
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},

    "dots3_note_text": {"per_layer_config": {}, "head_dim": 16, "qk_rope_head_dim": 8},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0}},
    "gemma4_assistant": {"text_config": {"model_type": "gemma4_text", **_ASSISTANT}},
    "gemma4_unified_assistant": {"text_config": {"model_type": "gemma4_unified_text", **_ASSISTANT}},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8, "num_experts": 4, "moe_topk": 2},
    "longcat_flash": {"head_dim": 4, "qk_rope_head_dim": 4},
    "mamba2": {"num_heads": 8, "head_dim": 8},
    "ministral": {"head_dim": 8},
    "nemotron": {"head_dim": 8, "num_key_value_heads": 2},
    "qwen4_exp_text": {
        "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 8,
        "indexer_compress_ratio": 2,
    },
    "reformer": {
        "is_decoder": True, "axial_pos_embds_dim": [8, 24], "axial_pos_shape": [8, 8], "attn_layers": ["local"] * 4,
    },
    "roc_bert": {
        "shape_vocab_size": 64, "pronunciation_vocab_size": 64, "shape_embed_dim": 8, "pronunciation_embed_dim": 8,
    },
    "xmod": {"default_language": "en_XX"},
    "zaya": {"num_experts_per_tok": 1},
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_n_heads": 8, "mamba_d_head": 8},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
}  # fmt: skip


def tiny_config(kind: str) -> PreTrainedConfig:
    """Of the model type ``kind``. Raises what transformers raises where the numbers do not fit each other."""
    try:
        defaults = AutoConfig.for_model(kind).to_dict()
    except StrictDataclassError:  # some have no valid defaults
        defaults = {}
    special = {
        name: _tiny(AutoConfig.for_model(value["model_type"]).to_dict()) | value if name == "text_config" else value
        for name, value in _SPECIAL.get(kind, {}).items()
    }
    return AutoConfig.for_model(kind, **(_tiny(defaults) | special))


def _tiny(defaults: dict[str, Any]) -> dict[str, Any]:
    layers = next((defaults[key] for key in ("num_hidden_layers", "n_layer", "num_layers") if defaults.get(key)), None)
    found: dict[str, Any] = {}
    for name, value in defaults.items():
        if isinstance(value, dict) and "model_type" in value:
            found[name] = _tiny(value) | _SPECIAL.get(value["model_type"], {}) | {"model_type": value["model_type"]}
        elif isinstance(value, list) and layers is not None and len(value) == layers:
            found[name] = _some_of_each(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            number = next((number for pattern, number in _NUMBERS if re.fullmatch(pattern, name)), None)
            if number is not None and value:
                found[name] = number
        elif value is None and name in ("pad_token_id", "bos_token_id", "eos_token_id"):
            found[name] = ("pad_token_id", "bos_token_id", "eos_token_id").index(name)
    if "kv_lora_rank" in found and "num_key_value_heads" in found:
        found["num_key_value_heads"] = found["num_attention_heads"]  # latent attention: keys and values of every head
    return found


def _some_of_each(values: list[Any]) -> list[Any]:
    """As many as there are layers: every kind at least once, in their order, the last kind most often."""
    kinds = [value for number, value in enumerate(values) if value not in values[:number]][:_LAYERS]
    return kinds + [kinds[-1]] * (_LAYERS - len(kinds))
