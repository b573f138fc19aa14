"""What a node was told at its first start holds at the next ones: real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfnode.run.node_toml import read_node_file
from sfnode.storage.data_directory import NODE_FILE, DataDirectory
from tests.support.daemons import JoinProcess, free_ports, run_sfnode
from tests.support.running_nodes import Joins

pytest_plugins = ("tests.support.node_fixtures",)
pytestmark = pytest.mark.process


def port_of(node: JoinProcess) -> list[str]:
    """The ports of the addresses at which a node says that it listens."""
    return sorted({address.split("/")[4] for address in node.wait_for_event("started")["addresses"]})


class StartProcess(JoinProcess):
    """The same node, started from its node.toml alone."""

    @property
    def words(self) -> list[str]:
        """``sfnode start``."""
        return ["start", "--data-dir", str(self.directory), "--json"]


def test_join__again_with_the_directory_alone__listens_where_it_did(run_file: Path, joins: Joins) -> None:
    first, second = free_ports(2)
    node = joins("node", "--run", run_file, "--relay", "--listen", f"/ip4/127.0.0.1/tcp/{first}")
    assert port_of(node) == [str(first)] and node.stop() == 0
    node.arguments = []
    node.start()
    assert port_of(node) == [str(first)]
    told = node.wait_for_event("remembered")
    assert told["settings"] == {"listen": [f"/ip4/127.0.0.1/tcp/{first}"], "relay": True}  # --no-mdns is typed
    assert node.stop() == 0

    node.arguments = ["--listen", f"/ip4/127.0.0.1/tcp/{second}"]
    node.start()
    assert port_of(node) == [str(second)] and node.stop() == 0  # the command line wins, and is remembered in turn
    again = StartProcess(directory=node.directory, arguments=[])
    again.start()
    assert port_of(again) == [str(second)] and again.stop() == 0
    assert "Traceback" not in again.logs[-1].read_text()


def test_join__start_that_fails__is_not_remembered(run_file: Path, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"sentence": "not the data of the run", "label": 1}\n')
    common = ("join", "--run", str(run_file), "--data-dir", str(tmp_path / "node"))
    assert run_sfnode(*common, "--data", str(tmp_path / "data.jsonl")).returncode == 1
    taken = run_sfnode(*common, "--relay", "--listen", "/ip4/203.0.113.7/tcp/4001")  # of no interface of this machine
    assert taken.returncode == 1 and "Traceback" not in taken.stderr
    assert not (tmp_path / "node" / NODE_FILE).exists()


def test_config_unset__option_of_a_stopped_node__does_not_hold_any_more(run_file: Path, joins: Joins) -> None:
    port = free_ports(1)[0]
    node = joins("node", "--run", run_file, "--relay", "--listen", f"/ip4/127.0.0.1/tcp/{port}")
    node.wait_for_event("started")
    told = run_sfnode("config", "unset", "listen", "--data-dir", str(node.directory))
    assert told.returncode == 0 and "stop the node and start it again" in told.stdout
    assert node.stop() == 0
    node.arguments = []
    node.start()
    assert node.wait_for_event("started")["addresses"] == []
    assert node.stop() == 0
    assert read_node_file(DataDirectory(node.directory)) == {"no-mdns": True, "relay": True}
