"""`sfnode join --metrics`: the figures of a real node, and what stands in their way."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support.daemons import free_ports, run_sfnode
from tests.support.running_nodes import STOP_S, Joins

pytest_plugins = ("tests.support.node_fixtures",)
pytestmark = pytest.mark.process


def test_metrics__node_runs__tells_of_it_until_it_ends(run_file: Path, joins: Joins) -> None:
    (port,) = free_ports(1)
    node = joins("node", "--run", run_file, "--relay", "--metrics", f"127.0.0.1:{port}")
    assert node.wait_for_event("metrics")["url"] == f"http://127.0.0.1:{port}/metrics"
    node.wait_for_event("progress")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    assert "sfnode_is_training 0.0" in lines
    assert node.stop(STOP_S) == 0
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5)


def test_metrics__port_in_use__the_node_does_not_start_and_says_where(run_file: Path, tmp_path: Path) -> None:
    join = ("join", "--run", str(run_file), "--data-dir", str(tmp_path / "node"), "--relay", "--no-mdns")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        failed = run_sfnode(*join, "--metrics", f"127.0.0.1:{taken.getsockname()[1]}")
    assert failed.returncode == 1
    assert "Name another port with --metrics 127.0.0.1:PORT" in failed.stderr
