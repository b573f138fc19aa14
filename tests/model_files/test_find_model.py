"""Where a model is looked for that is not fetched: a folder, a conversion, or the cache of the hub's own library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from huggingface_hub import constants

from protocol.errors import OperatorError
from sfnode.model_files import hub
from sfnode.model_files.hub import find_in_cache
from sfnode.model_files.resolve import find_model_folder

MODEL, COMMIT = "facebook/opt-125m", "27dcfa74d334bc871f3234de431e71c6eeba5dd6"


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that the hub's library has downloaded."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--facebook--opt-125m" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def test_model_folder__revision_in_the_hubs_cache__is_its_snapshot(snapshot: Path) -> None:
    assert find_model_folder(MODEL, COMMIT) == snapshot


@pytest.mark.parametrize("there", [(), ("model.safetensors.index.json",), ("pytorch_model.bin.index.json",)])
def test_model_folder__download_was_broken_off_before_the_weights_came__must_be_fetched(
    there: tuple[str, ...], snapshot: Path
) -> None:
    """`sfnode join`, Ctrl-C, `sfnode join` went on with the half, and advised to convert pickles that are none."""
    (snapshot / "model.safetensors").unlink()
    for name in there:
        ending = name.split(".")[1]
        (snapshot / name).write_text(json.dumps({"weight_map": {"a": f"a.{ending}", "b": f"b.{ending}"}}))
        (snapshot / f"a.{ending}").write_bytes(b"")
    assert find_model_folder(MODEL, COMMIT) is None
    if there:
        (snapshot / f"b.{ending}").write_bytes(b"")
        assert find_in_cache(MODEL, COMMIT) == snapshot


@pytest.mark.parametrize(("model", "revision"), [(MODEL, "f" * 40), (MODEL, ""), ("facebook/opt-350m", COMMIT)])
def test_model_folder__another_revision_or_model__is_not_on_this_disk(
    model: str, revision: str, snapshot: Path
) -> None:
    assert find_model_folder(model, revision) is None
    assert snapshot.is_dir()


def test_model_folder__install_without_the_hubs_library__finds_nothing(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "find_spec", lambda _name: None)
    assert find_model_folder(MODEL, COMMIT) is None
    assert snapshot.is_dir()


@pytest.mark.parametrize("reference", ["./opt", "/absent-opt", "opt", "a/b/c", "two words/opt"])
def test_model_folder__neither_folder_nor_id__is_an_error(reference: str) -> None:
    with pytest.raises(OperatorError, match="no such folder"):
        find_model_folder(reference, COMMIT)
