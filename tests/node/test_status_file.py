"""The status file: a node does not end because it cannot be written."""

from __future__ import annotations

import io
import json
from pathlib import Path

from sfnode.node.watching.node_watch import StatusFile
from sfnode.reporter import Reporter
from sfnode.status import Status
from tests.support.statuses import blank


def test_status_file__cannot_be_written__is_said_once_and_once_more_when_it_can(tmp_path: Path) -> None:
    said = io.StringIO()
    path = tmp_path / "status.json"
    file = StatusFile(path, Reporter(is_json=True, stream=said))
    path.mkdir()
    for _ in range(3):
        file.write(blank(Status))
    path.rmdir()
    for _ in range(3):
        file.write(blank(Status))
    assert json.loads(path.read_text())["pid"] == 0
    first, second = [json.loads(line) for line in said.getvalue().splitlines()]
    assert (first["event"], first["is_written"], second["is_written"]) == ("status_file", False, True)
    assert "cannot write" in first["reason"] and str(path) in first["reason"]
