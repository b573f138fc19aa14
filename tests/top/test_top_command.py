"""`sfnode top` as a user calls it: lines without a terminal, a picture, and what it says of nodes that are gone."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.run.manifest import sign_manifest
from sfnode.storage.data_directory import STATUS_FILE, DataDirectory
from sfnode.storage.record_store import Store
from sfnode.top.screen import NodeView, look
from tests.support.cli_calls import assert_teaches, call
from tests.support.manifests import OWNER, small_manifest
from tests.support.statuses import STATUS, changed


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """A directory that a node holds, and where it has just reported."""
    store = Store(DataDirectory(tmp_path / "node"), sign_manifest(small_manifest(), OWNER))
    report(tmp_path / "node", time.time())
    yield tmp_path / "node"
    store.close()


def report(directory: Path, at: float) -> None:
    status = changed(STATUS, pid=os.getpid(), time=at)
    (directory / STATUS_FILE).write_text(json.dumps(status.to_json()))


def test_top__once__is_a_line_for_each_node_and_code_one_where_one_is_missing(running: Path, tmp_path: Path) -> None:
    outcome = call("top", running, "--once")
    assert outcome.code == 0 and "step 120/500, loss 0.582" in outcome.stdout
    outcome = call("top", running, "--data-dir", tmp_path / "none", "--once")
    found = outcome.stdout.splitlines()
    assert outcome.code == 1 and len(found) == 2 and "is not a node's data directory" in found[1]


def test_top__no_node_here__says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert_teaches(call("top"), "there is no node in ~/.sfnode", "--data-dir", "sfnode join")


def test_look__node_that_stops_reporting__keeps_its_last_status_beside_the_reason(running: Path) -> None:
    first = look(NodeView(data_dir=DataDirectory(running)))
    assert first.trouble == "" and first.status is not None
    report(running, time.time() - 60)
    second = look(first)
    assert second.status == first.status and "it hangs" in second.trouble


def test_look__node_that_had_finished__has_not_failed(running: Path) -> None:
    done = NodeView(data_dir=DataDirectory(running.parent / "gone"), status=changed(STATUS, is_over=True))
    stopped = Store(done.data_dir, sign_manifest(small_manifest(), OWNER))
    stopped.close()
    found = look(done)
    assert "has finished its run and stopped" in found.trouble and found.is_done
