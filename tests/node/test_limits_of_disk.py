"""``--max-disk``, and ``sfnode pause --for``: what the operator allows a node to keep, and for how long it rests."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from protocol.errors import OperatorError
from protocol.run.manifest import sign_manifest
from sfnode.cli import cli
from sfnode.node.watching.disk_limit import check_disk
from sfnode.storage import disk
from sfnode.storage.data_directory import DataDirectory
from tests.support.manifests import OWNER, small_manifest


def test_check_disk__directory_has_outgrown_its_limit__stops_the_node_and_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "ledger.sqlite3").write_bytes(bytes(2_000_000))
    check_disk(DataDirectory(tmp_path), None)
    check_disk(DataDirectory(tmp_path), 2_000_000)
    with pytest.raises(OperatorError, match=r"takes 2\.0 MB of 1\.5 MB \(--max-disk\).*a higher --max-disk"):
        check_disk(DataDirectory(tmp_path), 1_500_000)
    tmp_path.rename(tmp_path.with_name("elsewhere"))  # it went on, and `sfnode stop` did not find it
    with pytest.raises(OperatorError, match=r"No such file.*moved, removed or closed while its node ran.*start there"):
        check_disk(DataDirectory(tmp_path), None)
    with pytest.raises(OperatorError, match="No such file"):
        disk.write_json(DataDirectory(tmp_path).status_file, {})
    with pytest.raises(OperatorError, match="No such file"):
        DataDirectory(tmp_path).end.write("stopped")
    assert not tmp_path.exists(), "status.json and end.json made the folder anew, and nothing else was in it"


def test_data_directory__closed_to_its_node__stops_it_and_is_neither_a_pause_nor_a_request_to_stop(
    tmp_path: Path,
) -> None:
    """A node without the right to enter its folder once went on unseen: each look at it failed, as did each stop."""
    closed = DataDirectory(tmp_path / ("n" * 300))  # root may enter all folders, but has no such names either
    with pytest.raises(OperatorError, match=r"cannot look into the data directory .*File name too long"):
        check_disk(closed, None)
    assert closed.control.paused_until_s() == 0.0 and not closed.control.is_asked_to_stop()
    assert closed.statements.waiting() == []


def test_pause__for_a_time_where_no_node_runs__holds_from_now_on_for_so_long(tmp_path: Path) -> None:
    data_dir = DataDirectory(tmp_path)
    data_dir.adopt(sign_manifest(small_manifest(), OWNER))
    result = CliRunner().invoke(cli, ["pause", "--data-dir", str(tmp_path), "--for", "90min", "--json"])
    told = json.loads(result.output)
    assert (result.exit_code, told["paused"], told["until"]) == (0, True, data_dir.control.paused_until_s())
    assert 5_300 < told["until"] - time.time() <= 5_401  # whole seconds
    assert CliRunner().invoke(cli, ["pause", "--data-dir", str(tmp_path), "--for", "soon"]).exit_code == 2
    CliRunner().invoke(cli, ["resume", "--data-dir", str(tmp_path)])
    assert not data_dir.control.is_paused()
