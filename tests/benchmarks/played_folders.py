"""The fixture `folders`: the data and the model that these benchmarks need, played by the embedded ones."""

from __future__ import annotations

import pytest

from benchmarks.learn.problems import MODEL, TASKS, Folders
from sfnode.demo import data_file, model_folder

TASK = TASKS["sst2"]


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
