"""Models of the kind that people bring (../shared/field): each works, or is refused in words that help."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

import pytest

from protocol.errors import OperatorError
from sfnode.model_files.resolve import resolve_model
from sfnode.storage import example_files
from sfnode.training.model.loading import load_tokenizer
from sfnode.training.model.weights_digest import load_described
from tests.support.stored_models import convert_here

WORKS: Final = ""
CONFIGS: Final = {  # by the names in configs.json
    "unknown_layer_kind": "`layer_types` entries must be in .*'ema'",
    "vocab_as_text": "Field 'vocab_size' expected int, got str",
    "hidden_as_float": "Field 'hidden_size' expected int, got float",
    "mxfp4": WORKS,
    "awq": r"quantised \(awq\).*Take the model that it was made from",
}


@pytest.fixture
def field(shared_folder: Path) -> Path:
    folder = shared_folder / "field"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not on this machine: inputs of the field are not tested")
    return folder


@pytest.mark.parametrize("name", CONFIGS)
def test_load_described__config_from_the_field__works_or_is_refused_in_words(
    name: str, field: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFNODE_MODELS", str(tmp_path / "models"))
    convert_here(monkeypatch)
    folder = Path(shutil.copytree(field.parent / "models" / "stories260K", tmp_path / name))
    over = json.loads((field / "configs.json").read_text())[name]
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **over}))
    if CONFIGS[name] == WORKS:
        load_tokenizer(resolve_model(str(folder)).path)
        load_described(resolve_model(str(folder)))
        return
    for load in (lambda: load_described(resolve_model(str(folder))), lambda: load_tokenizer(folder)):
        with pytest.raises(OperatorError, match=CONFIGS[name]):
            load()


def test_locate__pointer_from_the_field__is_called_so(field: Path) -> None:
    with pytest.raises(OperatorError, match=r"lfs_pointer\.txt is a Git LFS pointer"):
        example_files.locate(str(field / "lfs_pointer.txt"))
