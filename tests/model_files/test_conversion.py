"""What is no folder of safetensors is converted into one, once: pickles, GGUF files, of a disk or of a hub's cache."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from torch import Tensor

from protocol.errors import OperatorError
from sfnode import demo
from sfnode.model_files import conversion, model_cache, resolve
from sfnode.model_files.model_folder import PICKLE_FILE, PICKLE_INDEX_FILE, SINGLE_FILE
from sfnode.model_files.resolve import find_model_folder, resolve_model
from sfnode.training.conversion import weight_writer
from sfnode.training.model.loading import load_causal_lm, load_tokenizer
from sfnode.training.model.weights_digest import check_model, content_of, load_described
from tests.support.stored_models import (
    COMMIT,
    HUB_ID,
    as_of_opt,
    convert_here,
    demo_tensors,
    gguf_model,
    hub_cache,
    pickled_folder,
    sharded_folder,
)

CPU = torch.device("cpu")
HEAD, EMBEDDING = "lm_head.weight", "model.decoder.embed_tokens.weight"


@pytest.fixture(scope="module")
def content() -> str:
    """What the embedded model's weights are."""
    return content_of(demo.model_folder())


@pytest.fixture(autouse=True)
def converted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What has been converted in this test, into a cache of its own."""
    monkeypatch.setenv("SFNODE_MODELS", str(tmp_path / "models"))
    return convert_here(monkeypatch)


def state(folder: Path) -> Mapping[str, Tensor]:
    model: Any = load_causal_lm(folder, CPU, torch.float32)
    found: Mapping[str, Tensor] = model.state_dict()
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --- pickles


@pytest.mark.parametrize(
    "tensors",
    [
        demo_tensors(),
        as_of_opt(demo_tensors(), "decoder."),  # as in facebook/opt-1.3b
        as_of_opt(demo_tensors(), "model.decoder."),
        {**demo_tensors(), HEAD: demo_tensors()[EMBEDDING]},  # tied, and saved twice
        {name: tensor.float() for name, tensor in demo_tensors().items()},
        {**demo_tensors(), "model.decoder.version": torch.tensor([3])},  # a counter: left out
    ],
    ids=["as it is", "without model.", "with model.", "tied twice", "other dtype", "counter"],
)
def test_pickles__of_the_same_weights__are_the_same_model(
    tensors: Mapping[str, Tensor], content: str, tmp_path: Path
) -> None:
    found = resolve_model(str(pickled_folder(tmp_path / "model", tensors)))
    assert (found.id, found.revision) == ("local:model", "")
    assert content_of(found.path) == content
    check_model(found.path, load_described(resolve_model(str(found.path)))[1])


def test_pickles__parameters_and_shared_memory__are_read(content: str, tmp_path: Path) -> None:
    tensors = demo_tensors()
    tied = torch.nn.Parameter(tensors[EMBEDDING])
    found = resolve_model(str(pickled_folder(tmp_path / "model", {**tensors, EMBEDDING: tied, HEAD: tied})))
    assert content_of(found.path) == content


def test_pickles__in_shards__are_read_by_their_index(content: str, tmp_path: Path) -> None:
    folder = sharded_folder(tmp_path / "model", demo_tensors())
    (folder / "pytorch_model-00003-of-00003.bin").write_bytes(b"of no interest")
    assert content_of(resolve_model(str(folder)).path) == content


@pytest.mark.parametrize("file", ["../model.bin", "/etc/model.bin", "model.pt", 5])
def test_pickles__index_names_a_file_elsewhere__is_refused(file: object, tmp_path: Path) -> None:
    folder = sharded_folder(tmp_path / "model", demo_tensors())
    (tmp_path / "model.bin").write_bytes((folder / "pytorch_model-00001-of-00002.bin").read_bytes())
    (folder / PICKLE_INDEX_FILE).write_text(json.dumps({"weight_map": {"a": file}}))
    with pytest.raises(OperatorError, match=r"index\.json names .*not a bin file of this folder"):
        resolve_model(str(folder))


def test_pickles__shard_is_missing__is_refused(tmp_path: Path) -> None:
    folder = sharded_folder(tmp_path / "model", demo_tensors())
    (folder / "pytorch_model-00002-of-00002.bin").unlink()
    with pytest.raises(OperatorError, match=r"00002\.bin is missing; copy it"):
        resolve_model(str(folder))


def test_pickles__tensor_in_two_shards__is_refused(tmp_path: Path) -> None:
    folder = sharded_folder(tmp_path / "model", demo_tensors())
    shutil.copy(folder / "pytorch_model-00001-of-00002.bin", folder / "pytorch_model-00002-of-00002.bin")
    with pytest.raises(OperatorError, match="is in another file, too"):
        resolve_model(str(folder))


def test_pickles__beside_safetensors__are_not_looked_at(tmp_path: Path, converted: list[str]) -> None:
    folder = Path(shutil.copytree(demo.model_folder(), tmp_path / "model"))
    (folder / PICKLE_FILE).write_bytes(b"not even a pickle")
    assert resolve_model(str(folder)).path == folder
    assert not converted


def test_pickles__weights_lack_a_tensor__are_refused_when_they_are_loaded(tmp_path: Path) -> None:
    tensors = demo_tensors()
    del tensors["model.decoder.final_layer_norm.bias"]
    found = resolve_model(str(pickled_folder(tmp_path / "model", tensors)))
    with pytest.raises(OperatorError, match=r"the weights lack 1 tensors .*final_layer_norm\.bias"):
        content_of(found.path)


# --- the hub


@pytest.mark.parametrize("revision", ["", "main", COMMIT])
def test_hub__only_pickles_with_opts_names__are_the_model_of_that_commit(
    revision: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mission's own command: on the hub facebook/opt-1.3b has no safetensors."""
    snapshot = hub_cache(tmp_path / "hub", pickled_folder(tmp_path / "model", as_of_opt(demo_tensors())))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    assert find_model_folder(HUB_ID, COMMIT) is None
    found = resolve_model(HUB_ID, revision)
    assert (found.id, found.revision) == (HUB_ID, COMMIT)
    assert content_of(found.path) == content and found.path != snapshot
    assert find_model_folder(HUB_ID, COMMIT) == found.path


def test_hub__revision_that_is_not_there__is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_cache(tmp_path / "hub", pickled_folder(tmp_path / "model", demo_tensors()))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(OperatorError, match="the hub cannot be reached and not all is cached"):
        resolve_model(HUB_ID, "f" * 40)


# --- GGUF


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_gguf__of_a_llama__has_its_very_weights_and_tokenizer(dtype: torch.dtype, tmp_path: Path) -> None:
    tensors = gguf_model(tmp_path / "tiny.gguf", dtype)
    found = resolve_model(str(tmp_path / "tiny.gguf"))
    assert (found.id, found.revision) == ("local:tiny.gguf", "")
    read = state(found.path)
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensors[name].float()) for name in tensors)
    assert load_tokenizer(found.path).convert_ids_to_tokens(load_tokenizer(found.path).encode("a the")) == ["a", "Ġthe"]


def test_gguf__values_that_16_bits_hold__take_16_bits(tmp_path: Path) -> None:
    gguf_model(tmp_path / "wide.gguf", torch.float32)
    gguf_model(tmp_path / "narrow.gguf", torch.float16)
    wide, narrow = (resolve_model(str(tmp_path / name)).path / SINGLE_FILE for name in ("wide.gguf", "narrow.gguf"))
    assert narrow.stat().st_size < 0.6 * wide.stat().st_size


def test_gguf__equal_input__gives_equal_bytes_wherever_it_lies(tmp_path: Path) -> None:
    gguf_model(tmp_path / "tiny.gguf")
    (tmp_path / "other").mkdir()
    shutil.copy(tmp_path / "tiny.gguf", tmp_path / "other" / "renamed.gguf")
    first, second = (resolve_model(str(tmp_path / name)).path for name in ("tiny.gguf", "other/renamed.gguf"))
    assert first != second and files(first) == files(second)
    assert not any(str(tmp_path).encode() in content for content in files(first).values())
    assert "transformers_version" not in json.loads((first / "config.json").read_text())
    assert not {"is_local", "local_files_only"} & json.loads((first / "tokenizer_config.json").read_text()).keys()


def test_gguf__files_that_lie_beside_it__change_nothing(tmp_path: Path) -> None:
    gguf_model(tmp_path / "tiny.gguf")
    alone = files(resolve_model(str(tmp_path / "tiny.gguf")).path)
    for name in ("config.json", "tokenizer_config.json", "tokenizer.json"):
        (tmp_path / name).write_text('{"trust_remote_code": true}')
    os.utime(tmp_path / "tiny.gguf", (0, 0))
    assert files(resolve_model(str(tmp_path / "tiny.gguf")).path) == alone


def test_weights__as_safetensors_pickles_and_gguf__join_the_same_run(tmp_path: Path, converted: list[str]) -> None:
    tensors = gguf_model(tmp_path / "tiny.gguf", torch.float16)
    whole = Path(shutil.copytree(resolve_model(str(tmp_path / "tiny.gguf")).path, tmp_path / "whole"))
    spec = load_described(resolve_model(str(whole)))[1]
    definition = shutil.ignore_patterns(SINGLE_FILE)
    pickles, file = (Path(shutil.copytree(whole, tmp_path / name, ignore=definition)) for name in ("pickles", "file"))
    torch.save(tensors, pickles / PICKLE_FILE)
    shutil.copy(tmp_path / "tiny.gguf", file)
    for folder in (whole, pickles, file):
        check_model(resolve_model(str(folder)).path, spec)
    assert converted == ["gguf", "pickles", "gguf"]


def test_gguf__in_a_folder_with_a_definition__that_one_holds(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    gguf_model(folder / "tiny.gguf")
    made = resolve_model(str(folder / "tiny.gguf")).path
    config = json.loads((made / "config.json").read_text()) | {"max_position_embeddings": 32}
    (folder / "config.json").write_text(json.dumps(config))
    found = resolve_model(str(folder)).path
    assert (found / "config.json").read_bytes() == (folder / "config.json").read_bytes()
    assert (found / "tokenizer.json").read_bytes() == (made / "tokenizer.json").read_bytes()
    (folder / "second.gguf").write_bytes(b"")
    with pytest.raises(OperatorError, match=r"model\.safetensors is missing"):
        content_of(resolve_model(str(folder)).path)


def test_gguf__definition_beside_it_asks_for_code__is_refused(tmp_path: Path) -> None:
    gguf_model(tmp_path / "tiny.gguf")
    made = resolve_model(str(tmp_path / "tiny.gguf")).path
    config = json.loads((made / "config.json").read_text()) | {"attn_implementation": "someone/kernel"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(OperatorError, match="asks for code from elsewhere"):
        resolve_model(str(tmp_path))


# --- the cache


def test_cache__second_use__converts_nothing(tmp_path: Path, converted: list[str]) -> None:
    folder = pickled_folder(tmp_path / "model", demo_tensors())
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert find_model_folder(str(folder), "") is None
    assert resolve_model(str(folder)) == resolve_model(str(folder))
    assert converted == ["pickles"]
    assert find_model_folder(str(folder), "") == resolve_model(str(folder)).path
    assert (resolve_model(str(folder)).path / "chat_template.jinja").read_text() == "{{ messages }}"


def test_cache__source_has_changed__is_converted_again(tmp_path: Path, converted: list[str], content: str) -> None:
    folder = pickled_folder(tmp_path / "model", demo_tensors())
    resolve_model(str(folder))
    torch.save({name: tensor + 1 for name, tensor in demo_tensors().items()}, folder / PICKLE_FILE)
    assert content_of(resolve_model(str(folder)).path) != content
    assert len(converted) == 2


def test_cache__conversion_fails__leaves_nothing(tmp_path: Path) -> None:
    folder = pickled_folder(tmp_path / "model", demo_tensors())
    (folder / PICKLE_FILE).write_bytes(b"no archive")
    with pytest.raises(OperatorError, match=r"not a file that torch\.save has written since version 1\.6"):
        resolve_model(str(folder))
    assert not list((tmp_path / "models").iterdir())


def test_cache__killed_while_it_was_made__is_made_anew_and_the_rest_goes_in_time(tmp_path: Path, content: str) -> None:
    folder = pickled_folder(tmp_path / "model", demo_tensors())
    old, killed, busy, new = (tmp_path / "models" / f".making-{name}" for name in ("old", "killed", "busy", "new"))
    for left in (old, killed, busy, new):
        (left / "model").mkdir(parents=True)
        (left / "model" / SINGLE_FILE).write_bytes(b"half")
    os.utime(old, (0, time.time() - 100_000))
    for minutes_old in (killed, busy):
        os.utime(minutes_old, (0, time.time() - 120))
    descriptor = os.open(busy, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # as the process that makes it does
    try:
        assert content_of(resolve_model(str(folder)).path) == content
    finally:
        os.close(descriptor)
    assert [each.exists() for each in (old, killed, busy, new)] == [False, False, True, True]


def test_cache__two_at_once__one_converts_and_the_other_waits_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pickled_folder(tmp_path / "model", demo_tensors())
    real, is_waiting = conversion.convert_weights, threading.Event()
    made: list[object] = []
    found: list[Path] = []

    def slowly(*arguments: Any) -> Path:
        made.append(arguments)
        assert is_waiting.wait(30), "the other one did not wait"
        return real(*arguments)

    def hear(text: str, _done: int, _total: int) -> None:
        if text.startswith("waiting for another process"):
            is_waiting.set()

    monkeypatch.setattr(resolve, "convert_weights", slowly)
    threads = [
        threading.Thread(target=lambda: found.append(resolve_model(str(folder), "", hear).path)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1 and len(found) == 2 and found[0] == found[1]
    assert [path.name for path in (tmp_path / "models").iterdir()] == [found[0].name], "something is left behind"


def test_conversion__once_the_tensors_are_known__has_a_total(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert conversion._of_total(5, tmp_path) == (5, 0)
    weight_writer.write_weights(tmp_path / "model", {"a": torch.zeros(4), "b": torch.zeros(2)})
    assert conversion._of_total(5, tmp_path) == (5, 24)
    assert conversion._of_total(500, tmp_path) == (24, 24)


def test_cache__cannot_be_written__says_where_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SFNODE_MODELS", str(tmp_path / "file" / "models"))
    with pytest.raises(OperatorError, match=r"cannot write to .*models: .*SFNODE_MODELS names another folder"):
        resolve_model(str(pickled_folder(tmp_path / "model", demo_tensors())))


def test_cache__file_system_without_locks__says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OperatorError, match=r"cannot lock .*models.*, as a folder on a disk of this machine would"):
        resolve_model(str(pickled_folder(tmp_path / "model", demo_tensors())))


def test_cache__no_variable__is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SFNODE_MODELS")
    assert model_cache.cache_folder() == Path("~/.sfnode/models").expanduser()


def test_weights__more_than_a_shard_holds__are_several_files_with_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setattr(weight_writer, "_SHARD_BYTES", 20_000)
    found = resolve_model(str(pickled_folder(tmp_path / "model", demo_tensors())))
    shards = sorted(path.name for path in found.path.glob("*.safetensors"))
    assert len(shards) > 2 and shards[0] == f"model-00001-of-{len(shards):05}.safetensors"
    assert content_of(found.path) == content
