"""A config.json that transformers refuses: the operator reads which file, which field, and what is expected."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from safetensors.torch import save_file

from protocol.errors import OperatorError
from sfnode.training.model.loading import empty_model, load_tokenizer
from tests.support.tiny_models import tiny_llama, tiny_tokenizer

OFTEN: Final[Mapping[str, tuple[object, str]]] = {
    "vocab_size": ("512", "Field 'vocab_size' expected int, got str"),
    "hidden_size": (64.0, "Field 'hidden_size' expected int, got float"),
    "num_hidden_layers": (None, "Field 'num_hidden_layers' expected int, got NoneType"),
    "layer_types": (
        ["full_attention", "ema"],
        r"`layer_types` entries must be in .* but got \['full_attention', 'ema'\]",
    ),
    "num_attention_heads": (5, r"hidden size \(\d+\) is not a multiple of the number of attention heads \(5\)"),
    "pad_token_id": ("0", r"'pad_token_id' with value '0' doesn't match any type in \(int, NoneType\)\. Mend it"),
    "tie_word_embeddings": ("false", "'tie_word_embeddings' expected bool"),
    "dtype": ("auto", "torch has no 'auto'; as a dtype write float32"),  # the tokenizer's files were blamed
    "rope_scaling": ([1], "'rope_parameters' with value"),
}
BUILDING: Final[Mapping[str, tuple[object, str]]] = {  # not seen before the layers are made
    "hidden_act": ("swish7", "'swish7' is missing, or a name that transformers does not know"),
    "text_config": (5, "'int' object"),
    "num_key_value_heads": (0, "modulo by zero"),
}


def folder_with(folder: Path, key: str, value: object) -> Path:
    tiny_tokenizer().save_pretrained(folder)
    config = tiny_llama().config.to_dict() | {key: value, "model_type": "llama"}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("key", OFTEN)
def test_config__field_that_transformers_refuses__is_named_with_what_is_expected(key: str, tmp_path: Path) -> None:
    """A fault once: the tokenizer, which reads config.json too, ended in a traceback."""
    value, said = OFTEN[key]
    folder = folder_with(tmp_path, key, value)
    for load in (empty_model, load_tokenizer):
        with pytest.raises(OperatorError, match=f"config.json.*{said}") as caught:
            load(folder)
        assert str(caught.value).startswith(str(folder)) and "\n" not in str(caught.value)
        assert len(str(caught.value)) < len(str(folder)) + 420


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r"tokenizer\.json is not a valid JSON file: .*Fetch its files again"),
        (b"{}", "'added_tokens' is missing"),
    ],
)
def test_load_tokenizer__file_that_is_not_one__is_said(content: bytes, said: str, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "use_cache", True)
    (folder / "tokenizer.json").write_bytes(content)
    with pytest.raises(OperatorError, match=f"the tokenizer cannot be loaded: .*{said}"):
        load_tokenizer(folder)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "tokenizer.json",
            None,
            r"tokenizer\.json is missing, and transformers cannot make one from tokenizer_config\.json",
        ),
        ("tokenizer_config.json", {"model_max_length": "2048"}, r"is not one that .*Fetch its files again"),
        ("special_tokens_map.json", [], r"one of its values is not one that transformers expects \('list' object"),
    ],
)
def test_load_tokenizer__file_is_missing_or_has_a_value_of_another_type__is_said(
    name: str, content: object, said: str, tmp_path: Path
) -> None:
    """Faults once: a sentence that ended in "one of:", and a traceback where the first text was read."""
    path = folder_with(tmp_path, "use_cache", True) / name
    if content is None:
        path.unlink()
    else:
        path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(OperatorError, match=f"the tokenizer cannot be loaded: .*{said}"):
        load_tokenizer(tmp_path)


def test_empty_model__kind_that_needs_its_own_code_or_continues_no_text__is_said(tmp_path: Path) -> None:
    path = folder_with(tmp_path, "use_cache", True) / "config.json"
    for fields, said in (
        ({"model_type": "own", "auto_map": {"AutoConfig": "c.C"}}, "the code that comes with a model is never run"),
        ({"model_type": "t5"}, r"T5 is no causal language model.*take one that is"),
    ):
        path.write_text(json.dumps(fields), "utf-8")
        with pytest.raises(OperatorError, match=f"config.json: .*{said}"):
            empty_model(tmp_path)


def test_load_tokenizer__file_of_a_newer_release__is_said(tmp_path: Path) -> None:
    """A fault once: the library of tokenizers raises a bare Exception, which came through as a traceback."""
    path = folder_with(tmp_path, "use_cache", True) / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": "9.0"}))
    with pytest.raises(OperatorError, match=r"the tokenizer cannot be loaded: Unknown tokenizer version '9\.0'"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("key", BUILDING)
def test_config__layers_cannot_be_made__is_said_of_config_json(key: str, tmp_path: Path) -> None:
    value, said = BUILDING[key]
    folder = folder_with(tmp_path, key, value)
    with pytest.raises(OperatorError, match=f"config.json: .*{said}") as caught:
        empty_model(folder)
    assert "sfnode-model-" not in str(caught.value)
