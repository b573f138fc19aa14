"""Folders of models as people have them: the embedded model with one file changed, cut off, exchanged or missing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoTokenizer

from sfnode import demo
from sfnode.model_files.model_folder import CONFIG_FILE, GENERATION_FILE, INDEX_FILE, PICKLE_FILE, SINGLE_FILE

BEYOND: Final = "<|im_start|>"  # a token that `token_without_a_row` adds to the tokenizer, and not to the model
_TOKENIZER: Final = "tokenizer.json"
_POINTER: Final = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 4137440\n" % (b"1" * 64)
_PAGE: Final = b"<!DOCTYPE html>\n<html><title>401 Unauthorized</title></html>"


def laid_over(fields: Mapping[str, object]) -> Callable[[Path], None]:
    """What writes these fields over those of config.json."""

    def change(model: Path) -> None:
        config = json.loads((model / CONFIG_FILE).read_text("utf-8"))
        (model / CONFIG_FILE).write_text(json.dumps(config | fields), "utf-8")

    return change


def written(name: str, data: bytes) -> Callable[[Path], None]:
    """What puts other content into a file."""

    def change(model: Path) -> None:
        (model / name).write_bytes(data)

    return change


def _cut_off(model: Path) -> None:
    data = (model / SINGLE_FILE).read_bytes()
    (model / SINGLE_FILE).write_bytes(data[: len(data) // 2])


def _encoded(name: str, encoding: str) -> Callable[[Path], None]:
    """What writes a text in another encoding."""
    return lambda model: written(name, (model / name).read_text("utf-8").encode(encoding))(model)


def _replaced(name: str, old: str, new: str) -> Callable[[Path], None]:
    """What changes a part of a text."""

    def change(model: Path) -> None:
        text = (model / name).read_text("utf-8")
        assert old in text, "else nothing changes"
        (model / name).write_text(text.replace(old, new), "utf-8", "surrogateescape", newline="")

    return change


def _weights(change: Callable[[str, Tensor], Tensor | None]) -> Callable[[Path], None]:
    """What changes tensors, or leaves them out."""

    def rewrite(model: Path) -> None:
        made = {name: change(name, tensor) for name, tensor in load_file(model / SINGLE_FILE).items()}
        save_file({name: tensor for name, tensor in made.items() if tensor is not None}, model / SINGLE_FILE)

    return rewrite


def _in_shards(dtypes: tuple[torch.dtype, torch.dtype], missing: str = "") -> Callable[[Path], None]:
    """What puts the weights into two files, each in a number format of its own, without the file ``missing``."""

    def divide(model: Path) -> None:
        tensors = load_file(model / SINGLE_FILE)
        names = sorted(tensors)
        parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
        for (file, held), dtype in zip(parts.items(), dtypes, strict=True):
            save_file({name: tensors[name].to(dtype) for name in held}, model / file)
        index = {"metadata": {}, "weight_map": {name: file for file, held in parts.items() for name in held}}
        (model / INDEX_FILE).write_text(json.dumps(index))
        (model / SINGLE_FILE).unlink()
        if missing:
            (model / missing).unlink()

    return divide


def _folder_for(name: str) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        (model / name).unlink()
        (model / name).mkdir()

    return change


def _loop_for(name: str) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        (model / name).unlink()
        (model / name).symlink_to(name)

    return change


def _alone(name: str, data: bytes, *kept: str) -> Callable[[Path], None]:
    """What leaves this file, and those that are kept."""

    def change(model: Path) -> None:
        for path in model.iterdir():
            if path.name not in kept:
                path.unlink()
        (model / name).write_bytes(data)

    return change


def _beyond(model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_tokens([BEYOND])
    tokenizer.save_pretrained(model)


def _several_templates(model: Path) -> None:
    (model / "additional_chat_templates").mkdir()
    (model / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    (model / "additional_chat_templates" / "tool_use.jinja").write_text("{{ messages[0].content }}")


def _quantised(**fields: object) -> Callable[[Path], None]:
    return laid_over({"quantization_config": fields})


MODELS: Final[Mapping[str, Callable[[Path], None]]] = {
    "as_it_is": lambda _model: None,
    "config_with_bom": _encoded(CONFIG_FILE, "utf-8-sig"),
    "size_as_text": laid_over({"hidden_size": "64"}),
    "layers_as_float": laid_over({"num_hidden_layers": 2.0}),
    "layers_null": laid_over({"num_hidden_layers": None}),
    "other_vocabulary": laid_over({"vocab_size": 12}),
    "unknown_type": laid_over({"model_type": "of_tomorrow", "architectures": ["TomorrowForCausalLM"]}),
    "no_causal_model": laid_over({"model_type": "bert", "architectures": ["BertForMaskedLM"]}),
    "gptq": _quantised(quant_method="gptq", bits=4, group_size=128),
    "fp8": _quantised(quant_method="fp8", weight_block_size=[128, 128]),
    "bitsandbytes": _quantised(quant_method="bitsandbytes", load_in_4bit=True),
    "config_is_a_page": written(CONFIG_FILE, _PAGE),
    "config_is_a_list": written(CONFIG_FILE, b"[]"),
    "config_is_empty": written(CONFIG_FILE, b""),
    "weights_are_a_page": written(SINGLE_FILE, _PAGE),
    "weights_cut_off": _cut_off,
    "weights_are_empty": written(SINGLE_FILE, b""),
    "weights_pointer": written(SINGLE_FILE, _POINTER),
    "tokenizer_pointer": written(_TOKENIZER, _POINTER),
    "config_pointer": written(CONFIG_FILE, _POINTER),
    "tokenizer_of_nothing": written(_TOKENIZER, b"{}"),
    "no_weights": lambda model: (model / SINGLE_FILE).unlink(),
    "no_tokenizer": lambda model: (model / _TOKENIZER).unlink(),
    "no_config": lambda model: (model / CONFIG_FILE).unlink(),
    "config_utf16": _encoded(CONFIG_FILE, "utf-16"),
    "config_latin1": _replaced(CONFIG_FILE, "{", '{"_comment": "caf\udce9",'),
    "config_crlf": _replaced(CONFIG_FILE, "\n", "\r\n"),
    "config_comma_at_the_end": _replaced(CONFIG_FILE, "\n}", ",\n}"),
    "config_of_python": written(CONFIG_FILE, b"{'model_type': 'opt'}"),
    "config_key_twice": _replaced(CONFIG_FILE, "{", '{"model_type": "bert",'),
    "config_nan": _replaced(CONFIG_FILE, "{", '{"init_std": NaN,'),
    "config_deep": written(CONFIG_FILE, b"[" * 100_000),
    "config_is_a_folder": _folder_for(CONFIG_FILE),
    "config_is_a_loop": _loop_for(CONFIG_FILE),
    "weights_are_a_loop": _loop_for(SINGLE_FILE),
    "no_heads": laid_over({"num_attention_heads": 0}),
    "heads_that_do_not_fit": laid_over({"num_attention_heads": 7}),
    "negative_size": laid_over({"ffn_dim": -1}),
    "other_size": laid_over({"ffn_dim": 100}),
    "more_layers": laid_over({"num_hidden_layers": 9}),
    "tokenizer_with_bom": _encoded(_TOKENIZER, "utf-8-sig"),
    "tokenizer_cut_off": _replaced(_TOKENIZER, "}", ""),
    "tokenizer_config_with_bom": _encoded("tokenizer_config.json", "utf-8-sig"),
    "tokenizer_config_utf16": _encoded("tokenizer_config.json", "utf-16"),
    "tokenizer_config_is_a_list": written("tokenizer_config.json", b"[]"),
    "tokenizer_class_of_tomorrow": written("tokenizer_config.json", b'{"tokenizer_class": "TomorrowTokenizer"}'),
    "generation_with_bom": written(GENERATION_FILE, b"\xef\xbb\xbf{}"),
    "generation_is_a_list": written(GENERATION_FILE, b"[]"),
    "generation_cut_off": written(GENERATION_FILE, b'{"eos_token_id": [2'),
    "chat_template_is_wrong": written("chat_template.jinja", b"{% for m in messages %}{{ m.content }}"),
    "several_chat_templates": _several_templates,
    "two_shards": _in_shards((torch.float32, torch.bfloat16)),
    "shard_missing": _in_shards((torch.float32, torch.float32), "model-2.safetensors"),
    "index_is_a_list": written(INDEX_FILE, b"[]"),
    "index_leads_out": written(INDEX_FILE, b'{"weight_map": {"a": "../a.safetensors"}}'),
    "head_tied_and_absent": _weights(lambda name, tensor: None if name == "lm_head.weight" else tensor),
    "norm_absent": _weights(lambda name, tensor: None if name.endswith("final_layer_norm.weight") else tensor),
    "weights_float64": _weights(lambda _name, tensor: tensor.double()),
    "weights_int8": _weights(lambda _name, tensor: tensor.to(torch.int8)),
    "weights_float8": _weights(lambda _name, tensor: tensor.to(torch.float8_e4m3fn)),
    "weights_nan": _weights(lambda _name, tensor: tensor * float("nan")),
    "one_weight_infinite": _weights(lambda name, tensor: tensor + float("inf") if "fc2.bias" in name else tensor),
    "mlx": laid_over({"quantization": {"group_size": 64, "bits": 4}}),
    "adapter_alone": _alone("adapter_config.json", b'{"base_model_name_or_path": "facebook/opt-125m"}'),
    "onnx_alone": _alone("model.onnx", b"\x08\x07"),
    "pth_alone": _alone("consolidated.00.pth", b"PK\x03\x04"),
    "pickle_is_a_page": _alone(PICKLE_FILE, _PAGE, CONFIG_FILE),
    "gguf_is_cut_off": _alone("model.gguf", b"GGUF\x03\0\0\0"),
    "token_without_a_row": _beyond,
}


def made_model(name: str, folder: Path) -> Path:
    """The model of this name, in a new folder `model` in ``folder``."""
    model = folder / "model"
    shutil.copytree(demo.model_folder(), model)
    MODELS[name](model)
    return model
