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


def _tokenizer_config(**fields: object) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        path = model / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | fields), "utf-8")

    return change


def _tokenizer_without(part: str) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        tokenizer = json.loads((model / _TOKENIZER).read_text("utf-8"))
        del tokenizer["model"][part]
        (model / _TOKENIZER).write_text(json.dumps(tokenizer), "utf-8")

    return change


def _renamed(prefix: str) -> Callable[[Path], None]:
    """What puts a prefix before the name of each tensor, as wrappers of a model in training do."""

    def change(model: Path) -> None:
        save_file(
            {f"{prefix}{name}": each for name, each in load_file(model / SINGLE_FILE).items()}, model / SINGLE_FILE
        )

    return change


def _after(*changes: Callable[[Path], None]) -> Callable[[Path], None]:
    """What changes one thing after the other."""

    def change(model: Path) -> None:
        for each in changes:
            each(model)

    return change


def _without(name: str) -> Callable[[Path], None]:
    return lambda model: (model / name).unlink()


def _moved(name: str, to: str) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        (model / name).rename(model / to)

    return change


def _saved_by_torch(name: str) -> Callable[[Path], None]:
    def change(model: Path) -> None:
        torch.save(load_file(model / SINGLE_FILE), model / name)
        (model / SINGLE_FILE).unlink()

    return change


def _rows(count: int) -> Callable[[Path], None]:
    """What gives the embedding so many rows, as frameworks pad a vocabulary, and config.json, too."""

    def change(model: Path) -> None:
        made = load_file(model / SINGLE_FILE)
        for name, each in made.items():
            if "embed_tokens" in name:
                made[name] = torch.cat([each, torch.zeros(max(0, count - len(each)), each.shape[1])])[:count].clone()
        save_file(made, model / SINGLE_FILE)
        laid_over({"vocab_size": count})(model)

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
    "weights_without_a_whole_header": lambda model: written(SINGLE_FILE, (model / SINGLE_FILE).read_bytes()[:100])(
        model
    ),
    "weights_of_another_name": _moved(SINGLE_FILE, "weights.safetensors"),
    "index_missing": _after(_in_shards((torch.float32, torch.float32)), _without(INDEX_FILE)),
    "index_without_a_map": _after(_in_shards((torch.float32, torch.float32)), written(INDEX_FILE, b"{}")),
    "shard_pointer": _after(_in_shards((torch.float32, torch.float32)), written("model-2.safetensors", _POINTER)),
    "pickle_alone": _saved_by_torch(PICKLE_FILE),
    "pt_beside_config": _saved_by_torch("model.pt"),
    "of_distributed_training": _renamed("module."),
    "of_a_compiled_model": _renamed("_orig_mod."),
    "of_peft": _renamed("base_model.model."),
    "adapter_without_weights": _after(_without(SINGLE_FILE), written("adapter_config.json", b"{}")),
    "tokenizer_without_merges": _tokenizer_without("merges"),
    "tokenizer_without_vocabulary": _tokenizer_without("vocab"),
    "tokenizer_of_another_kind": _after(_without(_TOKENIZER), written("vocab.txt", b"[UNK]\na\n")),
    "tokenizer_in_sentencepiece": _after(_without(_TOKENIZER), written("tokenizer.model", b"\x0a\x0b")),
    "tokenizer_length_as_text": _tokenizer_config(model_max_length="2048"),
    "tokenizer_length_endless": _tokenizer_config(model_max_length=1e30),
    "tokenizer_code_of_its_own": _tokenizer_config(auto_map={"AutoTokenizer": ["tokenization_x.X", None]}),
    "added_tokens_out_of_step": written("added_tokens.json", b'{"<x>": 5000}'),
    "special_tokens_are_a_list": written("special_tokens_map.json", b"[]"),
    "vocabulary_padded": _rows(832),
    "vocabulary_cut": _rows(700),
    "dtype_old_key": laid_over({"torch_dtype": "bfloat16"}),
    "dtype_new_key": laid_over({"dtype": "float16"}),
    "dtype_both_keys": laid_over({"torch_dtype": "float16", "dtype": "bfloat16"}),
    "dtype_of_nothing": laid_over({"torch_dtype": "float33"}),
    "dtype_as_number": laid_over({"dtype": 16}),
    "code_of_its_own": laid_over(
        {"model_type": "x_own", "auto_map": {"AutoConfig": "c.C", "AutoModelForCausalLM": "m.M"}}
    ),
    "code_beside_a_known_type": laid_over({"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}}),
    "bitsandbytes_of_old": laid_over({"quantization_config": {"load_in_4bit": True}}),
    "quantised_by_nothing": laid_over({"quantization_config": None}),
    "quantised_for_a_server": _quantised(quant_method="compressed-tensors", format="float-quantized"),
    "encoder_and_decoder": laid_over({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}),
    "for_pictures": laid_over({"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"]}),
    "implementation_from_elsewhere": laid_over({"_attn_implementation": "flash_attention_2"}),
    "no_type": laid_over({"model_type": None}),
    "one_position": laid_over({"max_position_embeddings": 0}),
    "ends_by_several_tokens": laid_over({"eos_token_id": [2, 3]}),
    "generation_that_contradicts_itself": written(GENERATION_FILE, b'{"do_sample": false, "temperature": 0.6}'),
}


def made_model(name: str, folder: Path) -> Path:
    """The model of this name, in a new folder `model` in ``folder``."""
    model = folder / "model"
    shutil.copytree(demo.model_folder(), model)
    MODELS[name](model)
    return model
