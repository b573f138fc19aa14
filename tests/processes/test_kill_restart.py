"""Real ``sfnode join`` daemons, killed with SIGKILL and started again: five at random end with equal digests."""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from benchmarks.sample_runs import OWNER, Shape, manifest_of, tiny_tensors
from protocol.run.manifest import sign_manifest
from sfnode.network.policy.addresses import peer_of_author
from sfnode.storage.data_directory import LEDGER_FILE
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from tests.support.daemons import JoinProcess, free_port, log_verify, write_run
from tests.support.running_nodes import Joins, address_in, wait_until
from tests.support.worker_process import paced_worker

NODES = 5
STEPS = 150
PACE_MS = 100  # of one step: the last of the kills comes before the end
KILLS = 12
LIMIT_S = 150

pytestmark = [pytest.mark.process(is_long=True), pytest.mark.timeout(240)]


def make_nodes(folder: Path, worker: Path) -> list[JoinProcess]:
    """Five nodes; each knows the two before it."""
    addresses: list[str] = []
    nodes = []
    for index in range(NODES):
        directory = folder / f"node{index}"
        listen = f"/ip4/127.0.0.1/tcp/{free_port()}"
        KeyFile(directory / IDENTITY_FILE).made_seed()
        peer = peer_of_author(KeyFile(directory / IDENTITY_FILE).signer().author)
        arguments = ["--run", str(folder / "test.run"), "--listen", listen, "--worker-socket", str(worker)]
        arguments += ["--model", "local:none", "--data", "embedded:reviews"]  # the worker reads none of them
        for target in addresses[-2:]:
            arguments += ["--bootstrap", target]
        addresses.append(f"{listen}/p2p/{peer}")
        nodes.append(JoinProcess(directory=directory, arguments=arguments))
    return nodes


def is_agreed(nodes: list[JoinProcess]) -> bool:
    statuses = [node.status() for node in nodes]
    pids = [node.process.pid for node in nodes if node.process]
    if [status.get("pid") for status in statuses] != pids or not all(status["is_finished"] for status in statuses):
        return False
    return len({status["ledger_root"] for status in statuses}) == 1


def is_training(node: JoinProcess) -> bool:
    """Whether the present life of the node has reported an update of its own, and the run is not over for it."""
    status = node.status()
    assert node.process is not None
    return status.get("pid") == node.process.pid and status["own_updates"] > 0 and not status["is_finished"]


def kill_at_random(nodes: list[JoinProcess], chance: random.Random) -> int:
    """Kill a random node every second or so, whatever it is doing; it starts again at once or a little later.

    Returns how many of the victims were training; the others were starting.
    """
    wait_until(lambda: all(is_training(node) for node in nodes), "all nodes train", LIMIT_S)
    hits = 0
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.2, 1.5))
        victim = chance.choice(nodes)
        hits += is_training(victim)
        victim.kill()
        time.sleep(chance.uniform(0.0, 1.0))
        victim.start()
    return hits


def torment(nodes: list[JoinProcess], chance: random.Random) -> None:
    """Start all, kill at random, wait until all agree, stop all in good order."""
    try:
        for node in nodes:
            node.start()
        assert kill_at_random(nodes, chance) >= KILLS // 3
        wait_until(lambda: is_agreed(nodes), "all nodes hold the same", LIMIT_S)
        assert [node.stop() for node in nodes] == [0] * NODES
    finally:
        for node in nodes:
            if node.process and node.process.poll() is None:
                node.kill()


def test_join_daemons__killed_at_random_and_restarted__end_with_equal_digests(tmp_path: Path) -> None:
    manifest = manifest_of(Shape(authors=NODES, steps=STEPS), tiny_tensors())
    write_run(sign_manifest(manifest, OWNER), tmp_path / "test.run")
    nodes = make_nodes(tmp_path, tmp_path / "worker.sock")
    with paced_worker(tmp_path / "worker.sock", manifest, PACE_MS):
        torment(nodes, random.Random(20_261_120))
    verified = [log_verify(node.directory) for node in nodes]
    assert sum(len(node.logs) for node in nodes) == NODES + KILLS
    assert len({entry["state_digest"] for entry in verified}) == 1
    assert all(entry["ok"] and entry["void_slots"] == 0 and entry["authors"] == NODES for entry in verified)


def known_peers(directory: Path) -> str:
    """The address book on the node's disk; empty while there is none."""
    ledger = f"file:{directory / LEDGER_FILE}?mode=ro"  # else a look at a file that is not there yet would make it
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(ledger, uri=True)) as database:
        row = database.execute("SELECT value FROM facts WHERE name = 'known_peers'").fetchone()
        return str(row[0]) if row else ""
    return ""


def test_join__killed_seconds_after_its_first_start__knows_its_peers_without_the_bootstrap(tmp_path: Path) -> None:
    run_file, port = tmp_path / "test.run", free_port()
    write_run(sign_manifest(manifest_of(Shape(authors=4, steps=100), tiny_tensors()), OWNER), run_file)
    bootstrap = address_in(tmp_path / "first", port)
    with Joins(tmp_path) as joins:
        joins("first", "--run", run_file, "--relay", "--listen", f"/ip4/127.0.0.1/tcp/{port}").wait_for_event("started")
        victim = joins("victim", "--run", run_file, "--relay", "--bootstrap", bootstrap)
        wait_until(lambda: f"tcp/{port}" in known_peers(victim.directory), "an address book on the disk", 15.0)
        victim.kill()
        victim.arguments = ["--relay"]
        victim.start()
        assert victim.wait_for_event("peer_joined")["peer"] == bootstrap.rpartition("/")[2]
