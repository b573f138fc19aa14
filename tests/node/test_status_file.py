"""The status file: a node does not end because it cannot be written."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import trio

from protocol.errors import OperatorError, StateMismatchError
from protocol.run import sign_manifest
from protocol.state import Replica
from sfnode.network import NetworkConfig
from sfnode.node.daemon import Daemon
from sfnode.node.running_node import RunningNode
from sfnode.node.watching.catch_up_monitor import CatchUpMonitor
from sfnode.node.watching.node_watch import StatusFile
from sfnode.reporter import Reporter
from sfnode.status import Status
from tests.support.daemons import daemon_in_this_process
from tests.support.manifests import OWNER, small_manifest
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


async def test_status_file__of_an_earlier_life__is_gone_while_the_node_reads_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sfnode status` said of the earlier process that it hangs."""
    signed, found = sign_manifest(small_manifest(), OWNER), []
    daemon = daemon_in_this_process(signed, tmp_path, network=NetworkConfig(), worker=None)
    (tmp_path / "status.json").write_text("{}")

    async def read(*_arguments: object) -> Replica:
        found.append((tmp_path / "status.json").exists())
        raise OperatorError("it has read enough")

    monkeypatch.setattr(Daemon, "_load_replica", read)
    with pytest.raises(OperatorError):
        await daemon.run()
    assert found == [False]


async def test_node__peers_cannot_be_saved_at_its_end__does_not_hide_why_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk took the place of two states that differ, and of a slip, after which the node lives on."""
    ends: list[Exception] = [StateMismatchError("the states differ"), ValueError("a bug")]

    async def end(*_arguments: object) -> None:
        raise ends.pop()

    def fail(*_arguments: object) -> None:
        raise OperatorError("the disk is full")

    monkeypatch.setattr(RunningNode, "run", end)
    monkeypatch.setattr(RunningNode, "save_peers", fail)
    daemon = daemon_in_this_process(
        sign_manifest(small_manifest(), OWNER), tmp_path, network=NetworkConfig(), worker=None
    )
    with pytest.raises(StateMismatchError):
        await daemon.run()
    assert ends == []
    assert daemon.slips.state.count == 3, "the slip, and each try: nothing had said that the peers were lost"


async def look_twice(tmp_path: Path) -> list[dict[str, Any]]:
    """The log of a node that has looked at itself twice."""
    signed, said = sign_manifest(small_manifest(), OWNER), io.StringIO()
    config = daemon_in_this_process(signed, tmp_path, network=NetworkConfig(), worker=None).config
    daemon = Daemon(config, Reporter(is_json=True, stream=said))

    def looks() -> int:
        return sum('"progress"' in line for line in said.getvalue().splitlines())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(daemon.run)
        with trio.fail_after(30):
            while looks() < 2:
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    return [json.loads(line) for line in said.getvalue().splitlines()]


async def test_node__notes_of_invitations_cannot_be_read__goes_on_and_says_so_once(tmp_path: Path) -> None:
    """A slip of an editor in invited.json ended the node, and each later start."""
    (tmp_path / "invited.json").write_text('{"not hex": "Ann"}')
    found = [line for line in await look_twice(tmp_path) if line["event"] == "invited_file"]
    assert len(found) == 1 and str(tmp_path / "invited.json") in found[0]["reason"]


async def test_node__watches_its_catching_up__by_a_clock_that_nobody_sets(tmp_path: Path) -> None:
    """A clock set back silenced the report for as long; one set forward reported no update a second."""
    with mock.patch.object(CatchUpMonitor, "look", return_value=None) as look:
        await look_twice(tmp_path)
    assert all(abs(call.args[0] - trio.current_time()) < 60 for call in look.call_args_list) and look.called
