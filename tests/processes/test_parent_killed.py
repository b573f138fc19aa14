"""What a process has started ends with it, even where it was killed hard and could not say goodbye."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.support.running_nodes import children, children_of, is_alive, wait_until

pytestmark = pytest.mark.process

FORKS = """
import subprocess, sys, time
from tests.support.fork_server import start
node = start(["testnet", "--nodes", "2", "--steps", "5000", "--dir", sys.argv[1]], stdin=0, stdout=1, stderr=2)
print("forked", node.pid, file=sys.stdout, flush=True)
time.sleep(600)
"""
FAKE_WORKER = """
import subprocess, sys, time
command = [sys.executable, "-m", "tests.netlab.worker", "--socket", sys.argv[1] + "/worker.sock"]
worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
worker.stdout.readline()
print("started", worker.pid, flush=True)
time.sleep(600)
"""


def below(pid: int) -> set[int]:
    """Its children, theirs, and so on."""
    own = set(children_of(pid))
    return own.union(*(below(child) for child in own))


def test_testnet__killed_hard__leaves_no_node_and_no_worker(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sfnode", "testnet", "--nodes", "3", "--steps", "5000", "--dir", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(children(process)) >= 4, "a worker and three nodes", 100.0)
    family = below(process.pid)
    process.kill()
    process.wait()
    wait_until(lambda: not any(map(is_alive, family)), "the end of all its processes", 30.0)
    said = [log.read_text() for log in tmp_path.glob("*.log")]
    assert len(said) == 3 and not any("Traceback" in text for text in said)
    assert any('"signal": "SIGTERM"' in text for text in said), said


@pytest.mark.parametrize("helper", [FORKS, FAKE_WORKER], ids=["fork server", "fake worker"])
def test_helpers_of_tests__tests_are_killed_hard__leave_no_process(helper: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        [sys.executable, "-c", helper, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as process:
        assert process.stdout is not None
        said = next(line for line in process.stdout if line.startswith((b"forked", b"started")))
        helped = int(said.split()[1])
        if helper is FORKS:
            wait_until(lambda: len(below(helped)) >= 2, "a worker and a node", 100.0)
        family = {helped} | below(helped) | below(process.pid)
        process.kill()
    wait_until(lambda: not any(map(is_alive, family)), "the end of all its processes", 30.0)
