"""How old a status may be, also where somebody has set the clock."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from protocol.errors import OperatorError
from sfnode.status import node_status
from sfnode.storage.data_directory import STATUS_FILE, DataDirectory
from tests.support.statuses import STATUS, changed


def written(folder: Path, age_s: float) -> Path:
    status = changed(STATUS, time=time.time() - age_s)
    (folder / STATUS_FILE).write_text(json.dumps(status.to_json()))
    return folder


@pytest.fixture(autouse=True)
def _a_node_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataDirectory, "check_is_node", lambda _self: None)
    monkeypatch.setattr(DataDirectory, "is_locked", lambda _self: True)


@pytest.mark.parametrize("age_s", [0.0, 5.0, -5.0])
def test_status__written_just_now__is_read(age_s: float, tmp_path: Path) -> None:
    assert node_status.read_status(DataDirectory(written(tmp_path, age_s))).node.run == STATUS.node.run


@pytest.mark.parametrize(
    ("age_s", "words"),
    [(60.0, "has not reported for 60 s: it hangs"), (-18_000.0, "since this machine's clock was set back by 18000 s")],
)
def test_status__old_or_from_before_the_clock_was_set_back__says_so(age_s: float, words: str, tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=words):
        node_status.read_status(DataDirectory(written(tmp_path, age_s)))


def test_status__of_another_release__says_what_helps(tmp_path: Path) -> None:
    (tmp_path / STATUS_FILE).write_text(json.dumps(STATUS.to_json() | {"new_field": 1}))
    with pytest.raises(OperatorError, match="Try again, or restart the node with this release"):
        node_status.read_status(DataDirectory(tmp_path))
