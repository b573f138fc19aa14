"""What lies beside the weights and says how a model is used: it travels, is compared, and nothing of it is missed."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import transformers
from transformers import tokenization_utils_base

from protocol.errors import OperatorError
from protocol.run.model import ModelSpec, Sharing, file_of
from sfnode import demo
from sfnode.model_files.model_cache import FetchedModel
from sfnode.model_files.model_folder import (
    DEFINITION_FILES,
    TOKENIZER_FILES,
    copy_beside,
    files_beside,
    place_of,
    read_config,
    weight_files,
)
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


def test_describe_files__several_chat_templates__travel_and_are_exported(model: Path, tmp_path: Path) -> None:
    """`additional_chat_templates/tool_use.jinja` was neither in the manifest nor in an export."""
    (model / "additional_chat_templates").mkdir()
    (model / "additional_chat_templates" / "tool_use.jinja").write_text("{{ messages[0].content }}")
    (model / "additional_chat_templates" / "notes.txt").write_text("no template")
    spec, fetched, out = described(model), tmp_path / "fetched", tmp_path / "out"
    name = "additional_chat_templates.tool_use.jinja"  # names in a manifest have no slash
    assert name in spec.usage and not any("notes" in each.name for each in spec.files)
    FetchedModel(spec).check_names()
    fetched.mkdir()
    for file in spec.files:  # as a joiner has it, under the names of the run
        shutil.copyfile(place_of(model, file.name), fetched / file.name)
    for folder in (model, fetched):
        check_definition(folder, spec)
        assert described(folder).files == spec.files
        out.mkdir()
        copy_beside(folder, out)
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(out)
        assert tokenizer.chat_template == {"default": CHAT, "tool_use": "{{ messages[0].content }}"}
        shutil.rmtree(out)
    place_of(model, name).write_text("another")
    with pytest.raises(OperatorError, match=r"additional_chat_templates/tool_use\.jinja is not the run's file"):
        check_definition(model, spec)


def test_weight_files__both_one_file_and_an_index__are_the_one_that_transformers_loads(model: Path) -> None:
    """A model saved over an older one in shards leaves their index: its weights were loaded, or missed."""
    (model / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-00001-of-00002.safetensors"}}')
    assert weight_files(model) == ("model.safetensors",)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize(("encoding", "said"), [("utf-8-sig", "UTF-8 with a byte order mark"), ("utf-16", "UTF-16")])
def test_read_config__byte_order_mark__is_said_and_how_to_mend_it(
    name: str, encoding: str, said: str, model: Path
) -> None:
    (model / name).write_text((model / name).read_text("utf-8"), encoding)
    looks: list[Callable[[], object]] = [lambda: read_config(model / name)]
    if name != "config.json":
        looks.append(lambda: described(model))
    for look in looks:
        with pytest.raises(OperatorError, match=rf"{name} is written in {said}.* save it as plain UTF-8"):
            look()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"a": 1,}', ".* at line 1, column"),
        (b"[]", "it holds a list, not an object"),
        (b'{"a": "caf\xe9"}', "byte 10 is no UTF-8"),
    ],
)
def test_read_config__no_json_object__says_what_is_wrong_and_where(content: bytes, said: str, model: Path) -> None:
    (model / "config.json").write_bytes(content)
    with pytest.raises(OperatorError, match=rf"config\.json is not a valid JSON file: {said}"):
        read_config(model / "config.json")


def test_read_config__file_that_may_not_be_read__says_so(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_arguments: object, **_options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", forbidden)
    with pytest.raises(OperatorError, match=r"config\.json cannot be read: Permission denied\..*permissions"):
        read_config(model / "config.json")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("adapter_config.json", "adapter_model.safetensors"), "an adapter alone: merge it into its model"),
        (("model.Q4_K_M.gguf", "model.Q8_0.gguf"), r"give what is in it: .*/model\.Q4_K_M\.gguf or .*Q8_0\.gguf"),
        (("snapshots/27dcfa7/config.json",), r"give what is in it: .*/snapshots/27dcfa7$"),
        (("checkpoint-500/config.json",), r"give what is in it: .*/checkpoint-500$"),
        (("model.onnx",), r"model\.onnx is not loaded: take the model with its config\.json and safetensors"),
        (("notes.txt",), "is not a model folder$"),
    ],
)
def test_weight_files__folder_of_something_else__is_called_so(
    names: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    looks: list[Callable[[], object]] = [lambda: weight_files(tmp_path), lambda: read_config(tmp_path / "config.json")]
    for look in looks:
        with pytest.raises(OperatorError, match=said):
            look()


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


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (("weights.safetensors",), r"there is weights\.safetensors: if it holds the whole model, call it model\.safe"),
        (("model-1.safetensors", "model-2.safetensors"), r"no model\.safetensors\.index\.json, which says what is in"),
        (("adapter_config.json", "adapter_model.safetensors"), "holds an adapter alone"),
        (("model.pt",), r"model\.pt is not loaded"),
        (("optimizer.bin",), "only safetensors are read"),
        (("model.safetensors.incomplete",), "If its download was broken off, fetch it again"),
    ],
)
def test_weight_files__neither_weights_nor_index__says_what_is_there_instead(
    there: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """ "Convert the model" was said of safetensors, too, and of half a download."""
    for name in ("config.json", *there):
        (tmp_path / name).write_text("{}")
    with pytest.raises(OperatorError, match=rf"model\.safetensors is missing; .*{said}"):
        weight_files(tmp_path)


def test_weight_files__link_that_leads_nowhere__is_to_be_mended(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").symlink_to("nowhere")
    with pytest.raises(OperatorError, match="is a link that leads to no file; mend the link"):
        weight_files(tmp_path)
