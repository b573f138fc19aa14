"""A node's data directory in the hands of its operator: copied, lost, and restored in another place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.daemons import free_port, log_verify
from tests.support.running_nodes import Joins, address_in, wait_for_updates, wait_until

pytest_plugins = ("tests.support.node_fixtures",)
pytestmark = pytest.mark.process


def test_status_file__cannot_be_written__node_goes_on_and_says_when_and_when_not(
    run_file: Path, joins: Joins, tmp_path: Path
) -> None:
    in_the_way = tmp_path / "node" / "status.json"
    in_the_way.parent.mkdir(mode=0o700)
    in_the_way.mkdir()
    node = joins("node", "--relay", "--run", run_file)
    said = node.wait_for_event("status_file")
    assert said["is_written"] is False and "cannot write" in said["reason"]
    in_the_way.rmdir()
    wait_until(lambda: node.status().get("pid"), "a status")
    assert [event["is_written"] for event in node.events() if event["event"] == "status_file"] == [False, True]
    assert node.stop() == 0


def test_data_directory__old_backup_started_elsewhere__goes_on_after_all_it_had_signed_and_never_equivocates(
    run_file: Path, paced: Path, joins: Joins, tmp_path: Path
) -> None:
    port = free_port()
    address = address_in(tmp_path / "other", port)  # before it starts: two that make one key at once, and one fails
    common = ["--run", run_file, "--worker-socket", paced]
    other = joins("other", *common, "--listen", f"/ip4/127.0.0.1/tcp/{port}")
    other.wait_for_event("started")
    node = joins("node", *common, "--bootstrap", address)
    wait_for_updates(node)
    assert node.stop() == 0
    backup = Path(shutil.copytree(node.directory, tmp_path / "backup"))

    node.start()
    wait_for_updates(node, 10)
    node.kill()
    wait_until(lambda: other.status()["peers"] == 0, "the other to notice")
    shutil.rmtree(node.directory)

    node.directory = backup
    node.start()
    wait_for_updates(node, 5)
    assert (node.stop(), other.stop()) == (0, 0)
    verified = [log_verify(directory) for directory in (node.directory, other.directory)]
    assert [(log["ok"], log["authors"], log["void_slots"]) for log in verified] == [(True, 2, 0)] * 2
