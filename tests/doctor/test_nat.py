"""`sfnode doctor` behind a real router: what it says of being reachable."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from protocol.crypto.keys import Signer
from sfnode.network.policy.addresses import peer_of_author
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from tests.netlab import namespaces
from tests.netlab.namespaces import Namespace, Wiring
from tests.support.daemons import JoinProcess, demo_run, write_run


@contextmanager
def relay_in(machine: Namespace, host: str, folder: Path) -> Iterator[str]:
    """A relay that listens there; gives its address."""
    directory = folder / machine.name
    peer = peer_of_author(Signer(KeyFile(directory / IDENTITY_FILE).made_seed()).author)
    where = ("--run", str(folder / "a.run"), "--listen", f"/ip4/{host}/tcp/4001")
    node = JoinProcess(directory, ["--relay", *where], prefix=machine.prefix)
    node.start()
    try:
        node.wait_for_event("started")
        yield f"/ip4/{host}/tcp/4001/p2p/{peer}"
    finally:
        node.stop(10)


def examine(machine: Namespace, bootstraps: list[str]) -> dict[str, dict[str, str]]:
    arguments = [part for address in bootstraps for part in ("--bootstrap", address)]
    command = [sys.executable, "-m", "sfnode", "doctor", "--relay", "--json", "--listen", "/ip4/0.0.0.0/tcp/4002"]
    done = subprocess.run([*machine.prefix, *command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return {row["check"].split(" /")[0]: row for row in json.loads(done.stdout)["checks"]}


@pytest.mark.process
def test_doctor__before_and_behind_a_router__tells_the_two_apart(tmp_path: Path) -> None:
    reason = namespaces.why_not_here() or namespaces.why_no_nat()
    if reason is not None:
        pytest.skip(reason)
    write_run(demo_run(steps=8), tmp_path / "a.run")
    wiring = Wiring()
    try:
        switch = wiring.switch("net")
        with ExitStack() as stack:
            bootstraps = []
            for name in ("one", "two"):
                machine = wiring.namespace(name)
                host = wiring.plug(machine, switch).one.address
                bootstraps.append(stack.enter_context(relay_in(machine, host, tmp_path)))
            outside, inside = wiring.namespace("outside"), wiring.namespace("inside")
            wiring.plug(outside, switch)
            _, before = wiring.behind_nat(inside, switch)
            found = examine(outside, bootstraps)
            assert found["reachable from outside"]["verdict"] == "ok"
            found = examine(inside, bootstraps)
            assert found["reachable from outside"]["verdict"] == "warning"
            assert (
                f"2 peers could not connect to port 4002 at {before.one.address}"
                in (found["reachable from outside"]["text"])
            )
            assert "forward TCP port 4002" in found["reachable from outside"]["advice"]
    finally:
        wiring.remove()
