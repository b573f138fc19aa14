"""A node is a normal libp2p peer: a js-libp2p client meets a real daemon, fetches its run and verifies its flood.

The client is ``tests/interop/client.mjs``; what it reads it checks with the independent reader in
``protocol/conformance/``. Its packages, in exact versions, are installed once into ``build/interop/``.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from sfnode.network.policy.addresses import peer_of_author
from sfnode.network.transport.host import PROTOCOL
from sfnode.storage.data_directory import DataDirectory
from tests import REPOSITORY
from tests.conformance import reader
from tests.support.daemons import demo_run, free_port, write_run
from tests.support.running_nodes import Joins, address_in, stop, wait_for_updates

pytest_plugins = ("tests.support.node_fixtures",)
pytestmark = pytest.mark.process(is_long=True)

SOURCES: Final = Path(__file__).resolve().parent
INSTALLED: Final = REPOSITORY / "build" / "interop"
RECORDS: Final = 5
_INSTALL_S: Final = 60.0


@pytest.fixture(scope="module")
def client() -> Path:
    """The client beside its packages, or a skip that says what is missing."""
    if fault := reader.node_fault():
        pytest.skip(fault)
    if fault := install():
        pytest.skip(fault)
    return Path(shutil.copy(SOURCES / "client.mjs", INSTALLED))


def install() -> str | None:
    """Packages of the lock file, unless they are there; why they cannot be had, else None."""
    wanted = hashlib.sha256((SOURCES / "package-lock.json").read_bytes()).hexdigest()
    stamp = INSTALLED / "installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return None
    program = shutil.which("npm")
    if program is None:
        return "npm is not installed: js-libp2p, which this test runs, comes by it"
    INSTALLED.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SOURCES / name, INSTALLED)
    command = [program, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries", "1"]
    try:
        finished = subprocess.run(
            command, cwd=INSTALLED, capture_output=True, text=True, timeout=_INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"npm could not fetch js-libp2p within {_INSTALL_S:.0f} s"
    if finished.returncode != 0:
        return f"npm could not fetch js-libp2p: {finished.stderr.strip()[-300:]}"
    stamp.write_text(wanted)
    return None


def test_js_libp2p__dials_a_daemon__identifies_fetches_the_run_and_verifies_the_flood(
    client: Path, joins: Joins, tmp_path: Path
) -> None:
    manifest = write_run(demo_run(steps=100_000), tmp_path / "long.run")
    port = free_port()
    address = address_in(tmp_path / "node", port)
    node = joins("node", "--run", tmp_path / "long.run", "--listen", f"/ip4/127.0.0.1/tcp/{port}")
    wait_for_updates(node)
    found = run_client(client, address)
    left = node.wait_for_event("peer_left")
    stop(node, signal.SIGTERM)
    held = {(author, step) for author, step in _held(tmp_path / "node", manifest.method.scalars)}
    assert found["peer"] == address.rpartition("/")[2]
    assert PROTOCOL in found["protocols"] and found["agent"] and found["pingMs"] < 10_000
    assert found["runId"] == manifest.run_id.hex()
    assert [peer_of_author(bytes.fromhex(author)) for author in found["authors"]] == [found["peer"]]
    assert len(found["steps"]) >= RECORDS
    assert {(found["authors"][0], step) for step in found["steps"]} <= held
    assert (left["peer"], left["reason"]) == (found["self"], "the peer said bye: enough seen")


def test_js_libp2p__daemon_of_another_identity_answers__client_refuses(
    client: Path, joins: Joins, tmp_path: Path
) -> None:
    write_run(demo_run(steps=8), tmp_path / "short.run")
    port = free_port()
    address_in(tmp_path / "node", port)
    joins("node", "--run", tmp_path / "short.run", "--listen", f"/ip4/127.0.0.1/tcp/{port}", "--relay").wait_for_event(
        "started"
    )
    finished = _node(client, address_in(tmp_path / "somebody-else", port))
    assert finished.returncode == 1 and "Error" in finished.stderr and not finished.stdout


def run_client(client: Path, address: str) -> dict[str, Any]:
    """What the client saw."""
    finished = _node(client, address)
    assert finished.returncode == 0, finished.stderr[-2_000:]
    found: dict[str, Any] = json.loads(finished.stdout)
    return found


def _node(client: Path, address: str) -> subprocess.CompletedProcess[str]:
    command = ["node", str(client), address, str(RECORDS)]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def _held(directory: Path, scalars: int) -> Iterator[tuple[str, int]]:
    with DataDirectory(directory).reading() as stored:
        for _, record in stored.records():
            assert len(record) == 44 + 2 * scalars + 64
            yield record[:32].hex(), int.from_bytes(record[32:36], "big")
