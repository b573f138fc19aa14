"""Folders of models as people have them: the embedded model with one file changed, cut off, exchanged or missing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from transformers import AutoTokenizer

from sfnode import demo
from sfnode.model_files.model_folder import CONFIG_FILE, SINGLE_FILE

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


def _with_mark(model: Path) -> None:
    text = (model / CONFIG_FILE).read_text("utf-8")
    (model / CONFIG_FILE).write_text(text, "utf-8-sig")


def _beyond(model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_tokens([BEYOND])
    tokenizer.save_pretrained(model)


def _quantised(**fields: object) -> Callable[[Path], None]:
    return laid_over({"quantization_config": fields})


MODELS: Final[Mapping[str, Callable[[Path], None]]] = {
    "as_it_is": lambda _model: None,
    "config_with_bom": _with_mark,
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
    "token_without_a_row": _beyond,
}


def made_model(name: str, folder: Path) -> Path:
    """The model of this name, in a new folder `model` in ``folder``."""
    model = folder / "model"
    shutil.copytree(demo.model_folder(), model)
    MODELS[name](model)
    return model
