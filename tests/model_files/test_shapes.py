"""A folder with another model is found by the shapes of its tensors, before anything is loaded."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from protocol.errors import OperatorError
from protocol.run.manifest import TensorKind, TensorSpec
from sfnode.model_files.verify import check_shapes

TENSORS = (
    TensorSpec(name="layer.weight", kind=TensorKind.MATRIX, rows=8, cols=4),
    TensorSpec(name="layer.bias", kind=TensorKind.VECTOR, rows=8, cols=0),
)


def folder_with(folder: Path, shapes: dict[str, list[int]]) -> Path:
    header = {name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    return folder


@pytest.mark.parametrize(
    "shapes", [{"layer.weight": [8, 4], "layer.bias": [8]}, {"layer.weight": [8, 4]}, {"model.layer.weight": [9, 9]}]
)
def test_shapes__as_in_the_run_or_under_other_names__are_the_workers_affair(
    shapes: dict[str, list[int]], tmp_path: Path
) -> None:
    check_shapes(folder_with(tmp_path, shapes), TENSORS, "facebook/opt-125m")


@pytest.mark.parametrize("shapes", [{"layer.weight": [16, 4]}, {"layer.weight": [8, 4], "layer.bias": [9]}])
def test_shapes__others_than_the_runs__name_folder_model_and_tensor(
    shapes: dict[str, list[int]], tmp_path: Path
) -> None:
    with pytest.raises(OperatorError, match=f"{tmp_path} is not the run's model facebook/opt-125m: its layer"):
        check_shapes(folder_with(tmp_path, shapes), TENSORS, "facebook/opt-125m")


def test_shapes__tensor_of_a_layer_is_missing__is_another_model_where_all_have_to_be_there(tmp_path: Path) -> None:
    names = ("decoder.layers.0.q.weight", "decoder.layers.1.q.weight", "head.weight")
    tensors = [TensorSpec(name=name, kind=TensorKind.MATRIX, rows=8, cols=4) for name in names]
    folder = folder_with(tmp_path, {"layers.0.q.weight": [8, 4]})
    check_shapes(folder, (tensors[0], tensors[2]), "m", are_all_there=True)
    check_shapes(folder, tensors, "m")
    with pytest.raises(OperatorError, match=f"{tmp_path} holds another model .* no decoder.layers.1.q.weight. Leave"):
        check_shapes(folder, tensors, "m", are_all_there=True)


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, struct.pack("<Q", 3) + b"[1]", struct.pack("<Q", 4) + b"nope"])
def test_shapes__file_that_is_none__is_the_workers_affair(data: bytes, tmp_path: Path) -> None:
    folder_with(tmp_path, {})
    (tmp_path / "model.safetensors").write_bytes(data)
    check_shapes(tmp_path, TENSORS, "m")
    check_shapes(tmp_path / "nowhere", TENSORS, "m")
