"""Two real nodes, one of which is paused, restarted, resumed and stopped by commands: the other never waits for it."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from protocol import limits
from protocol.run.admission import AdmissionKind, AdmissionSpec
from protocol.run.manifest import sign_manifest
from sfnode.run.node_toml import read_node_file
from sfnode.storage.data_directory import DataDirectory
from tests.support.daemons import JoinProcess, demo_run, free_port, log_verify, run_sfnode, write_run
from tests.support.manifests import OWNER
from tests.support.patience import wait_for_end
from tests.support.running_nodes import Joins, address_in, wait_for_updates, wait_until

pytest_plugins = ("tests.support.node_fixtures",)
pytestmark = [pytest.mark.process(is_long=True), pytest.mark.timeout(240)]


class Pair:
    """A node that goes on, and one that is steered."""

    def __init__(self, folder: Path, joins: Joins, worker: Path, steps: int) -> None:
        self._options = ["--run", folder / "test.run", "--worker-socket", worker]
        write_run(demo_run(steps=steps), folder / "test.run")
        port = free_port()
        self._joins, self._address = joins, address_in(folder / "first", port)
        self.first = joins("first", *self._options, "--listen", f"/ip4/127.0.0.1/tcp/{port}", "--neighbours-min", 1)

    def join(self, *arguments: object) -> JoinProcess:
        return self._joins("steered", *self._options, "--bootstrap", self._address, *arguments)


def say(command: str, node: JoinProcess) -> dict[str, object]:
    """What a command answers about the node."""
    outcome = run_sfnode(command, "--data-dir", str(node.directory), "--json")
    assert outcome.returncode == 0, outcome
    return dict(json.loads(outcome.stdout))


def own(node: JoinProcess) -> int:
    return int(node.status()["own_updates"])


def test_pause__over_a_restart__other_goes_on_and_resume_brings_it_back(
    tmp_path: Path, joins: Joins, paced: Path
) -> None:
    pair = Pair(tmp_path, joins, paced, steps=100_000)
    steered = pair.join()
    wait_for_updates(steered)
    started = time.monotonic()
    wait_for_updates(pair.first, 40)
    together_s = time.monotonic() - started

    told = say("pause", steered)
    assert told["is_running"] and "sfnode resume" in str(told["reason"])
    before = own(steered)
    wait_for_updates(pair.first, 20)  # while others may be late, each round waits for them
    started = time.monotonic()
    wait_for_updates(pair.first, 40)
    alone_s = time.monotonic() - started
    assert own(steered) <= before + 1  # the step that was being measured counts
    # It does not wait for the paused one, but once for eight of its intervals (SPEC 9.1), which are long on a busy
    # machine: 5 s have been seen. The fault that this is about took half a minute.
    assert alone_s < 3 * together_s + 10, (alone_s, together_s)
    wait_until(lambda: steered.status()["updates"] > 40, "the paused node applies what comes")
    line = run_sfnode("status", "--data-dir", str(steered.directory))
    assert line.returncode == 6 and "paused   by `sfnode pause`" in line.stdout

    assert say("stop", steered)["stopped"] and steered.process is not None and wait_for_end(steered.process, 5.0) == 0
    before = steered.process.pid
    steered.start()
    wait_until(lambda: steered.status().get("pid", before) != before, "the first status after the restart")
    assert steered.status()["paused"]
    wait_until(lambda: steered.status()["peers"], "a peer after the restart")
    held = steered.status()["updates"]
    wait_until(lambda: steered.status()["updates"] > held + 20, "it stores what comes")
    assert own(steered) == 0

    assert say("resume", steered) == {"paused": False, "is_running": True, "reason": ""}
    wait_for_updates(steered)
    assert say("stop", pair.first)["stopped"] and say("stop", steered)["stopped"]


def test_pause__at_the_end_of_the_run__others_leave_and_so_does_it(tmp_path: Path, joins: Joins, paced: Path) -> None:
    pair = Pair(tmp_path, joins, paced, steps=60)
    pair.first.kill()
    (tmp_path / "steered").mkdir(mode=0o700)
    (tmp_path / "steered" / "paused").touch(mode=0o600)
    pair.first.arguments.append("--exit-when-finished")
    pair.first.start()
    steered = pair.join("--exit-when-finished")
    assert pair.first.process is not None and steered.process is not None
    assert [wait_for_end(each, 90.0) for each in (pair.first.process, steered.process)] == [0, 0]
    digests = {log_verify(node.directory)["state_digest"] for node in (pair.first, steered)}
    assert len(digests) == 1 and own(steered) == 0 and own(pair.first) > 0


def test_limits__outside_the_hours__are_remembered_and_shown_with_the_reason(
    tmp_path: Path, joins: Joins, paced: Path
) -> None:
    pair = Pair(tmp_path, joins, paced, steps=100_000)
    hour = (time.localtime().tm_hour + 2) % 24
    text = f"{hour}-{(hour + 1) % 24 or 24}"
    steered = pair.join("--hours", text, "--max-upload", "200kB/s", "--on-battery", "work")
    told = steered.wait_for_event("paused")
    assert told["reason"] == "hours"
    wait_until(lambda: steered.status().get("paused", "").startswith(f"outside {text}, again in "), "the reason")
    fields = read_node_file(DataDirectory(steered.directory)) or {}
    assert (fields["hours"], fields["max-upload"], fields["on-battery"]) == (text, "200kB/s", "work")
    shown = run_sfnode("config", "set", "hours", "22-", "--data-dir", str(steered.directory))
    assert shown.returncode == 1 and "22-7" in shown.stderr
    wait_for_updates(pair.first, 10)
    assert own(steered) == 0


def test_max_memory__less_than_the_plan__is_refused_at_the_start_with_figures(tmp_path: Path) -> None:
    write_run(demo_run(steps=10), tmp_path / "test.run")
    outcome = run_sfnode(
        "join", "--run", str(tmp_path / "test.run"), "--data-dir", str(tmp_path / "node"), "--max-memory", "100MB",
        "--device", "cpu",
    )  # fmt: skip
    assert outcome.returncode == 1 and "Traceback" not in outcome.stderr
    assert "--max-memory is 100 MB, but this node would take about" in outcome.stderr


def test_start__node_that_looks_for_its_key__is_shown_by_status_and_ended_by_stop(tmp_path: Path, joins: Joins) -> None:
    """A fault once: `status` called it no node, and `stop` said that there was nothing to stop, for minutes."""
    work = AdmissionSpec(kind=AdmissionKind.OPEN, pow_bits=limits.POW_BITS_MAX)
    write_run(sign_manifest(replace(demo_run(steps=10).manifest, admission=work), OWNER), tmp_path / "test.run")
    node = joins("node", "--run", tmp_path / "test.run")
    node.wait_for_event("finding_key")
    shown = run_sfnode("status", "--data-dir", str(node.directory))
    assert shown.returncode == 1 and "has been starting for " in shown.stderr, shown
    second = run_sfnode("join", "--run", str(tmp_path / "test.run"), "--data-dir", str(node.directory))
    assert second.returncode == 1 and "in use by another sfnode" in second.stderr, second
    assert say("stop", node)["stopped"] and node.process is not None and wait_for_end(node.process, 5.0) == 0
    assert run_sfnode("stop", "--data-dir", str(node.directory)).returncode == 1


def test_stop__no_node_runs__is_refused(tmp_path: Path, joins: Joins, paced: Path) -> None:
    pair = Pair(tmp_path, joins, paced, steps=100_000)
    pair.first.wait_for_event("started")
    assert pair.first.stop() == 0
    outcome = run_sfnode("stop", "--data-dir", str(pair.first.directory))
    assert outcome.returncode == 1 and "there is nothing to stop" in outcome.stderr
