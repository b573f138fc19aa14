"""What lies beside the weights and says how a model is used: it travels, is compared, and nothing of it is missed."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import transformers
from transformers import tokenization_utils_base

from protocol.errors import OperatorError
from protocol.run.model import ModelSpec, Sharing, file_of
from sfnode import demo
from sfnode.model_files.fetched_model import FetchedModel
from sfnode.model_files.model_folder import DEFINITION_FILES, TOKENIZER_FILES, files_beside, weight_files
from sfnode.model_files.resolve import resolve_model
from sfnode.model_files.verify import check_definition, describe_files
from sfnode.storage import decode_run_file, example_files
from sfnode.training.conversion.gguf_header import check_header
from sfnode.training.model.loading import named_stops

CHAT: Final = "{% for m in messages %}{{ m.content }}{% endfor %}"
POINTER: Final = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"1" * 64 + b"\nsize 4137440\n"
_NAMES: Final = re.compile(r"VOCAB_FILES_NAMES = \{(.*?)\}", re.DOTALL)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(demo.model_folder("tiny-opt"), tmp_path / "model"))
    (folder / "chat_template.jinja").write_text(CHAT)
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 7], "temperature": 0.6}')
    return folder


def described(folder: Path) -> ModelSpec:
    return describe_files(resolve_model(str(folder)), "0" * 64, Sharing.PEERS)


def looked_at(folder: Path, spec: ModelSpec) -> None:
    check_definition(folder, spec)
    weight_files(folder)


def test_files_beside__tokenizers_of_transformers__have_no_file_that_is_missed() -> None:
    folder = Path(transformers.__file__).parent / "models"
    sources = [path.read_text("utf-8") for path in folder.glob("*/tokenization_*.py")]
    named = {name for text in sources for found in _NAMES.findall(text) for name in re.findall(r': "(.*?)"', found)}
    assert len(named) > 12
    assert named - {*DEFINITION_FILES} == set()
    utils: Any = transformers.utils  # exports nothing explicitly
    constants = {
        utils.CHAT_TEMPLATE_FILE, utils.GENERATION_CONFIG_NAME, utils.PROCESSOR_NAME, utils.FEATURE_EXTRACTOR_NAME,
        utils.VIDEO_PROCESSOR_NAME, utils.LEGACY_PROCESSOR_CHAT_TEMPLATE_FILE,
        tokenization_utils_base.SPECIAL_TOKENS_MAP_FILE, tokenization_utils_base.ADDED_TOKENS_FILE,
        tokenization_utils_base.TOKENIZER_CONFIG_FILE, tokenization_utils_base.FULL_TOKENIZER_FILE,
    }  # fmt: skip
    assert constants <= {*DEFINITION_FILES}


def test_describe_files__chat_template_and_settings_for_generation__are_in_the_manifest(model: Path) -> None:
    spec = described(model)
    assert {"chat_template.jinja", "generation_config.json"} <= {*spec.usage}
    FetchedModel(spec).check_names()  # a joiner fetches them
    check_definition(model, spec)
    (model / "chat_template.jinja").write_text("another")
    with pytest.raises(OperatorError, match=r"chat_template\.jinja is not the run's file"):
        check_definition(model, spec)
    (model / "chat_template.jinja").unlink()
    with pytest.raises(OperatorError, match=r"chat_template\.jinja is missing, but the run's model"):
        check_definition(model, spec)


def test_check_definition__run_that_does_not_name_them__bears_them(model: Path) -> None:
    spec = described(model)
    check_definition(model, replace(spec, tokenizer=tuple(f for f in spec.tokenizer if f.name in TOKENIZER_FILES)))


def test_check_names__file_that_no_model_has__is_refused(model: Path) -> None:
    spec = described(model)
    strange = replace(spec, tokenizer=(*spec.tokenizer, file_of("modeling_own.py", b"raise SystemExit")))
    with pytest.raises(OperatorError, match=r"has a file modeling_own\.py, which this sfnode does not fetch"):
        FetchedModel(strange).check_names()


def test_named_stops__settings_for_generation__count_where_the_run_names_them(model: Path) -> None:
    assert named_stops(model, files_beside(model)) == {2, 7}
    assert named_stops(model, TOKENIZER_FILES) == frozenset()
    (model / "generation_config.json").write_text('{"eos_token_id": 5}')
    assert named_stops(model, files_beside(model)) == {5}
    (model / "generation_config.json").write_text("{}")
    assert named_stops(model, files_beside(model)) == frozenset()


# --- Git LFS pointers


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "generation_config.json"]
)
def test_describe_files__git_lfs_pointer__is_called_so(model: Path, name: str) -> None:
    spec = described(model)
    (model / name).write_bytes(POINTER)
    for look in (lambda: described(model), lambda: looked_at(model, spec)):
        with pytest.raises(
            OperatorError, match=rf"{name} is a Git LFS pointer, not the file itself: run `git lfs pull`"
        ):
            look()


@pytest.mark.parametrize("name", ["model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"])
def test_resolve_model__git_lfs_pointer_for_weights_of_any_kind__is_called_so(model: Path, name: str) -> None:
    (model / "model.safetensors").unlink()
    (model / name).write_bytes(POINTER)
    with pytest.raises(OperatorError, match=rf"{name} is a Git LFS pointer"):
        weight_files(resolve_model(str(model)).path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<!DOCTYPE html>\n<html><title>Sign in</title></html>", "a web page, not the file itself"),
        (b"\n <HTML><body>404</body></HTML>", "a web page, not the file itself"),
        (b"version https://hawser.github.com/spec/v1\noid sha256:1\n", "a Git LFS pointer"),
        (b"/annex/objects/SHA256E-s4137440--1.safetensors\n", "a git-annex pointer.*`git annex get`"),
    ],
)
def test_weight_files__something_else_in_the_place_of_a_file__is_called_so(
    content: bytes, said: str, model: Path
) -> None:
    (model / "model.safetensors").write_bytes(content)
    with pytest.raises(OperatorError, match=rf"model\.safetensors is {said}"):
        weight_files(model)


def test_check_header__git_lfs_pointer_in_place_of_a_gguf_file__is_called_so(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(POINTER)
    with pytest.raises(OperatorError, match=r"model\.gguf is a Git LFS pointer"):
        check_header(tmp_path / "model.gguf")


def test_locate__git_lfs_pointer_in_place_of_data__is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(POINTER)
    for look in (
        lambda: example_files.locate(str(path)),
        lambda: example_files.sha256_of(path),
        lambda: decode_run_file(path),
    ):
        with pytest.raises(OperatorError, match=r"rows\.jsonl is a Git LFS pointer"):
            look()
