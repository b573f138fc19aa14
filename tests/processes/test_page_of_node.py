"""`sfnode join --web`: the page of a real node, what stands in its way, and that it goes when the node goes."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from sfnode.page import TOKEN_FILE
from tests.support.daemons import free_ports, run_sfnode
from tests.support.running_nodes import STOP_S, Joins

pytest_plugins = ("tests.support.node_fixtures",)
pytestmark = pytest.mark.process


def test_web__node_runs__its_page_tells_of_it_until_it_ends(run_file: Path, joins: Joins) -> None:
    (port,) = free_ports(1)
    node = joins("node", "--run", run_file, "--relay", "--web", f"127.0.0.1:{port}")
    assert node.wait_for_event("web")["url"] == f"http://127.0.0.1:{port}/"
    node.wait_for_event("progress")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/events", timeout=20) as stream:
        shown = json.loads(stream.readline().removeprefix(b"data: "))
        assert (shown["status"]["run"], shown["run"]["is_live"]) == ("test", True)
        assert any("the model learns" in text for _, _, text in shown["log"])
        assert node.stop(STOP_S) == 0  # although somebody looks
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)


def test_web__others_can_reach_it__its_token_is_asked_for(run_file: Path, joins: Joins) -> None:
    (port,) = free_ports(1)
    node = joins("node", "--run", run_file, "--relay", "--web", f"0.0.0.0:{port}")
    node.wait_for_event("started")
    token = (node.directory / TOKEN_FILE).read_text().strip()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=5) as answer:
        assert b"<title>sfnode</title>" in answer.read()
    assert node.stop(STOP_S) == 0


def test_web__port_in_use__the_node_does_not_start_and_says_where(run_file: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        join = ("join", "--run", str(run_file), "--data-dir", str(tmp_path / "node"), "--relay", "--no-mdns")
        failed = run_sfnode(*join, "--web", where)
    assert failed.returncode == 1
    assert failed.stderr.startswith("Error: the page cannot be served at 127.0.0.1, port ")
    assert "Name another address with --web HOST:PORT" in failed.stderr


def test_web__address_of_a_run_in_its_place__says_what_to_write(tmp_path: Path) -> None:
    failed = run_sfnode("join", "--web", "sfnode:6f1c@/ip4/203.0.113.7/tcp/4001/p2p/12D3", "--data-dir", str(tmp_path))
    assert failed.returncode == 2
    assert "write --web as the last option" in " ".join(failed.stderr.split())
