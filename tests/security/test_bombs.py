"""Small files that would become large: in time, in memory or on the disk. Each is refused soon, by name."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from protocol.errors import OperatorError
from protocol.run import TensorKind, TensorSpec
from sfnode import demo
from sfnode.model_files import model_folder as model_folder, verify
from sfnode.model_files.model_folder import CONFIG_FILE, INDEX_FILE, PICKLE_FILE, SINGLE_FILE
from sfnode.model_files.resolve import resolve_model
from sfnode.training.conversion import from_pickles
from sfnode.training.conversion.from_gguf import convert_gguf
from sfnode.training.conversion.from_pickles import convert_pickles
from sfnode.training.model import loading, safe_model_files
from sfnode.training.model.loading import load_causal_lm
from tests.security.test_hostile_models import refused, safetensors, tensor, text
from tests.support.stored_models import pickled_folder, raw_gguf, without_limits

CPU = torch.device("cpu")
ENDLESS = (1 << 31) - 1


def folder_with(tmp_path: Path, **changed: object) -> Path:
    """The embedded model with other fields in its config.json."""
    folder = tmp_path / "model"
    shutil.copytree(demo.model_folder(), folder)
    config = json.loads((folder / CONFIG_FILE).read_text())
    (folder / CONFIG_FILE).write_text(json.dumps(config | changed))
    return folder


# --- endless layers


@pytest.mark.parametrize("name", ["num_hidden_layers", "n_layer", "num_local_experts", "encoder_layers"])
def test_config__endless_layers__are_refused_before_the_first_is_made(name: str, tmp_path: Path) -> None:
    """transformers makes a list of as many: 17 GB, and then the layers themselves, for ever."""
    folder = folder_with(tmp_path, **{name: ENDLESS})
    assert f"asks for too much ({name}: {ENDLESS}" in refused(lambda: load_causal_lm(folder, CPU, torch.float32))


def test_config__endless_layers_in_a_part_of_it__are_refused(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, text_config={"num_hidden_layers": ENDLESS})
    assert "no model has so many layers" in refused(lambda: load_causal_lm(folder, CPU, torch.float32))


def test_config__more_parts_than_any_model__stop_being_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its field is called."""
    monkeypatch.setattr(loading, "PARTS_MAX", 5)
    folder = folder_with(tmp_path)
    assert "more than 5 layers and parts of layers" in refused(lambda: load_causal_lm(folder, CPU, torch.float32))
    monkeypatch.setattr(loading, "PARTS_MAX", safe_model_files.PARTS_MAX)
    load_causal_lm(folder, CPU, torch.float32)


def test_gguf__endless_layers__are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_limits(monkeypatch)
    fields = [
        text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama"),
        text(b"llama.block_count") + struct.pack("<II", 4, ENDLESS),
        text(b"llama.embedding_length") + struct.pack("<II", 4, 32),
        text(b"llama.attention.head_count") + struct.pack("<II", 4, 4),
    ]
    path = tmp_path / "endless.gguf"
    path.write_bytes(raw_gguf(b"".join(fields), counts=(0, len(fields))))
    assert f"num_hidden_layers: {ENDLESS}" in refused(lambda: convert_gguf(path, tmp_path))


# --- bytes that count more than once


def test_gguf__a_thousand_tensors_of_the_same_bytes__are_refused(tmp_path: Path) -> None:
    """One megabyte, 131,072 times: 137 GB of memory that it might take, and as much on the disk."""
    count, values = 1_000, 1_024
    tensors = b"".join(tensor(b"t%d" % number, (values,)) for number in range(count))
    path = tmp_path / "shared.gguf"
    path.write_bytes(raw_gguf(tensors=tensors, counts=(count, 0)) + bytes(32 + 4 * values))
    said = refused(lambda: convert_gguf(path, tmp_path))
    assert "shares its bytes with another one" in said and str(path) in said


def test_gguf__two_tensors_that_overlap_by_a_byte__are_refused(tmp_path: Path) -> None:
    tensors = tensor(b"a", (8,)) + tensor(b"b", (8,), offset=31)
    path = tmp_path / "overlap.gguf"
    path.write_bytes(raw_gguf(tensors=tensors, counts=(2, 0)) + bytes(200))
    assert "tensor 'b' shares its bytes" in refused(lambda: convert_gguf(path, tmp_path))


# --- pickles


def test_pickle__archive_of_directory_entries_alone__is_read_within_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each entry of 46 bytes becomes an object of 500: what it may take is set before the first is read."""
    done: list[str] = []

    def check(file: Path) -> None:
        done.append("read")
        raise OperatorError("refused")

    monkeypatch.setattr(from_pickles, "allow", lambda **_limits: done.append("limited"))
    monkeypatch.setattr(from_pickles, "_check_archive", check)
    folder = pickled_folder(tmp_path / "model", {})
    refused(lambda: convert_pickles(folder, tmp_path))
    assert done == ["limited", "read"]


class Zeros:
    """A call that torch's reader permits, with a number of the attacker's."""

    def __reduce__(self) -> tuple[Any, tuple[int]]:
        return bytearray, (1 << 40,)


def test_pickle__a_terabyte_of_zeros__is_refused_by_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFNODE_MODELS", str(tmp_path / "models"))
    folder = pickled_folder(tmp_path / "model", {"a": torch.zeros(2)})
    data = io.BytesIO()
    pickle.Pickler(data, protocol=2).dump({"a": Zeros()})
    with zipfile.ZipFile(folder / PICKLE_FILE) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(folder / PICKLE_FILE, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, data.getvalue() if name.endswith("data.pkl") else content)
    with pytest.raises(OperatorError, match=rf"{folder}.*(takes more memory than such a file may|cannot be read)"):
        resolve_model(str(folder))
    assert not list((tmp_path / "models").glob("*/*.safetensors"))


# --- headers that the node itself reads


def test_shapes__header_of_more_bytes_than_it_reads__are_left_to_the_worker(tmp_path: Path) -> None:
    """JSON takes twenty times its length, and it is the node's own process that looks."""
    folder = folder_with(tmp_path)
    entries = {f"t{number}": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for number in range(100_000)}
    (folder / SINGLE_FILE).write_bytes(safetensors(json.dumps(entries).encode()))
    wrong = TensorSpec(name="t1", kind=TensorKind.VECTOR, rows=7, cols=0)
    verify.check_shapes(folder, (wrong,), "model")


def test_index__of_more_bytes_than_any__is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_folder, "_JSON_BYTES_MAX", 1_000)
    folder = folder_with(tmp_path)
    (folder / SINGLE_FILE).rename(folder / "part.safetensors")
    (folder / INDEX_FILE).write_text(json.dumps({"weight_map": {"a": "part.safetensors"}}) + " " * 1_000)
    assert "is not an index of safetensors files" in refused(lambda: load_causal_lm(folder, CPU, torch.float32))


def test_config__of_more_bytes_than_any__is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_with(tmp_path)
    monkeypatch.setattr(model_folder, "_JSON_BYTES_MAX", 100)
    assert "is not a valid JSON file" in refused(lambda: load_causal_lm(folder, CPU, torch.float32))
