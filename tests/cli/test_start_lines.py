"""What `sfnode join` says when the node has started: first what a person wants to know, then, if asked, the details."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from protocol.run import sign_manifest
from sfnode.cli.joining import node_run
from sfnode.cli.joining.node_run import _tell_started
from sfnode.network import NetworkConfig
from sfnode.network.policy.addresses import parse_address, peer_of_author
from sfnode.node.daemon import Daemon
from sfnode.reporter import Reporter
from sfnode.storage import DataDirectory
from tests.support.cli_calls import call
from tests.support.daemons import daemon_in_this_process, write_run
from tests.support.ledgers import signer
from tests.support.manifests import OWNER, small_manifest

HERE = parse_address(f"/ip4/127.0.0.1/tcp/4001/p2p/{peer_of_author(signer(0).author)}")


@pytest.mark.parametrize("is_verbose", [False, True])
def test_join__node_started__begins_with_what_for_whom_how_long_and_how_to_stop(
    tmp_path: Path, is_verbose: bool
) -> None:
    """It began with memory, disk, ids and remembered options, and never said what the model learns."""
    signed, shown = sign_manifest(small_manifest(), OWNER), io.StringIO()
    config = daemon_in_this_process(signed, tmp_path, network=NetworkConfig(), worker=None).config
    _tell_started(Daemon(config, Reporter(stream=shown, is_verbose=is_verbose)), (HERE,))
    lines = shown.getvalue().splitlines()
    assert lines[0] == "run test: the model learns to answer no or yes to: {sentence} It was"
    assert lines[1].startswith(f"for its owner {signed.manifest.owner[:16]}, in {signed.manifest.steps:,} steps")
    assert lines[2] == f"stop with Ctrl-C, and nothing is lost; go on with `sfnode start {tmp_path}`"
    assert lines[3] == f"look with `sfnode status {tmp_path}` or `sfnode top {tmp_path}`"
    details = [f"run id {signed.manifest.run_id.hex()}, data in {tmp_path}", f"listening on {HERE}"]
    assert [line for line in lines if line in details] == (details if is_verbose else [])


def test_join__request_to_stop_an_earlier_start__is_dropped_before_the_node_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By chance the node locked its directory first, took the old request for its own, and stopped."""
    node, asked = DataDirectory(tmp_path / "node"), []

    async def run(*_arguments: object) -> None:
        asked.append(node.control.is_asked_to_stop())

    monkeypatch.setattr(node_run, "_run", run)
    write_run(sign_manifest(small_manifest(), OWNER), tmp_path / "a.run")
    node.claim()
    node.control.ask_to_stop()
    assert call("join", "--run", tmp_path / "a.run", "--relay", "--data-dir", node).code == 0 and asked == [False]
