"""The fixture `folders`: the data and the model that these benchmarks need, played by the embedded ones."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.learn import spaces
from benchmarks.learn.problems import MODEL, TASKS, Folders
from protocol.run import TensorSpec
from sfnode.demo import data_file, model_folder
from sfnode.training.calibration import FoundBasis
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import TaskData

TASK = TASKS["sst2"]
Known = dict[tuple[object, ...], FoundBasis | None]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """SST-2 and its model, played by the embedded reviews and model."""
    root = tmp_path_factory.mktemp("shared")
    for name, split in ((TASK.train, "train"), (TASK.tune, "eval"), (TASK.test, "eval")):
        path = root / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data_file(split=split).read_bytes())
    (root / "models").mkdir()
    (root / "models" / MODEL).symlink_to(model_folder())
    return Folders(data=root / "data", models=root / "models")


@pytest.fixture(scope="module")
def known_bases() -> Known:
    """What `found_once` has found."""
    return {}


@pytest.fixture
def found_once(known_bases: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    """Find the basis of a dense core once for the same examples: that takes longer than a short run in it.

    The base model is always the embedded one. What is found twice is the same: `test_learn`, `test_learn_real`.
    """
    find = spaces.calibrate

    def remembered(
        shared: SharedModel, tensors: Sequence[TensorSpec], data: TaskData, batch_rows: int, bits: int
    ) -> FoundBasis | None:
        key = (str(shared.dtype), *tensors, data.label_tokens, data.examples, batch_rows, bits)
        if key not in known_bases:
            known_bases[key] = find(shared, tensors, data, batch_rows, bits)
        return known_bases[key]

    monkeypatch.setattr(spaces, "calibrate", remembered)
