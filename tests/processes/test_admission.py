"""Real ``sfnode join`` daemons: the owner excludes an author in the middle, admits one, and invites another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from protocol.crypto.hashing import Author
from protocol.run.manifest import Manifest
from protocol.state.replica import Replica
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from sfnode.storage.statement_files import INBOX_FOLDER
from tests.support import forked_children
from tests.support.cli_calls import call
from tests.support.daemons import JoinProcess, demo_run, free_port, log_verify, write_run
from tests.support.manifests import OWNER_SEED
from tests.support.running_nodes import Joins, address_in, wait_until as wait_until_within

pytest_plugins = ("tests.support.node_fixtures",)
pytestmark = [pytest.mark.process(is_long=True), pytest.mark.timeout(240)]

STEPS = 120
FROM_STEP = 5


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Three daemons and their worker on a busy machine take their time."""
    wait_until_within(condition, what, 100)


class Run:
    """A run on disk, its owner's key, and nodes that dial the first one."""

    def __init__(self, folder: Path, joins: Joins, worker: Path, admission: str, steps: int = STEPS) -> None:
        self.key = folder / "owner.key"
        self.file = folder / "test.run"
        KeyFile(self.key).store(OWNER_SEED)
        self.manifest: Manifest = write_run(demo_run(steps=steps, admission=admission), self.file)
        self._joins = joins
        self._worker = worker
        self._port = free_port()
        self._first = address_in(joins.folder / "first", self._port)

    def join(self, name: str, *arguments: object, own_worker: bool = False) -> JoinProcess:
        options: list[object] = ["--run", self.file, "--eval-every", 0]
        if not own_worker:
            options += ["--worker-socket", self._worker]
        if name == "first":
            options += ["--listen", f"/ip4/127.0.0.1/tcp/{self._port}"]
        else:
            options += ["--bootstrap", self._first]
        return self._joins(name, *options, *arguments)

    def owner(self, command: str, *arguments: object) -> str:
        """One ``sfnode run`` command, signed by the owner; what it printed."""
        outcome = call("run", command, *arguments, "--owner-key", self.key)
        assert outcome.code == 0, outcome
        return outcome.stdout


def author_of(node: JoinProcess) -> Author:
    return KeyFile(node.directory / IDENTITY_FILE).signer().author


def has_steps(node: JoinProcess, step: int) -> bool:
    return bool(node.status().get("step", 0) >= step)


def are_equal(*nodes: JoinProcess) -> bool:
    statuses = [node.status() for node in nodes]
    roots = {status.get("ledger_root") for status in statuses}
    return len(roots) == 1 and roots != {""} and len({status["state_digest"] for status in statuses}) == 1


def test_run__author_excluded_from_an_earlier_step_on__all_end_as_if_it_had_stopped_there(
    paced: Path, joins: Joins, tmp_path: Path
) -> None:
    run = Run(tmp_path, joins, paced, "open")
    first = run.join("first", "--neighbours-min", 2)  # else it may reach the run's end before the others are up
    bad = run.join("bad")
    wait_until(lambda: bad.status().get("own_updates", 0) > FROM_STEP + 5, "updates of the bad author")
    second = run.join("second")
    wait_until(lambda: second.status().get("updates", 0) > FROM_STEP, "the third node follows")
    run.owner("exclude", author_of(bad).hex(), "--from-step", FROM_STEP, "--data-dir", second.directory)
    wait_until(lambda: all(has_steps(node, STEPS) for node in (first, second)), "the end of the run")
    wait_until(lambda: are_equal(first, second, bad), "equal digests")
    assert bad.wait_for_event("admission")["excluded_from"] == FROM_STEP
    wait_until(lambda: not list((second.directory / INBOX_FOLDER).iterdir()), "the file is put away")
    statuses = [node.status() for node in (first, second, bad)]
    assert [status["authors_excluded"] for status in statuses] == [1, 1, 1]
    assert [status["rejected"] for status in statuses] == [0, 0, 0]
    assert [node.stop() for node in (first, second, bad)] == [0, 0, 0]
    check(run.manifest, [first, second, bad], author_of(bad), statuses[0]["state_digest"])


def check(manifest: Manifest, nodes: list[JoinProcess], bad: Author, state_digest: str) -> None:
    """A replay with the statement; and one without it, of the records that there would be if the author had stopped."""
    for node in nodes:
        verified = log_verify(node.directory)
        assert (verified["ok"], verified["state_digest"]) == (True, state_digest)
        without = Replica(manifest)
        with DataDirectory(node.directory).reading() as stored:
            records = [record for _, record in stored.records()]
        later = [r for r in records if r[:32] == bad and int.from_bytes(r[32:36], "big") >= FROM_STEP]
        assert later, "the bad author's later updates were never here: nothing was taken out"
        for record in records:
            if record not in later:
                without.add(record)
        assert without.state_digest().hex() == state_digest
        with DataDirectory(node.directory).replayed(manifest) as replica:
            assert 0 < max(e.step for e in replica.ledger.slots.envelopes() if e.author == bad) < FROM_STEP


def test_run__by_invitation__trains_who_was_invited_or_admitted_and_lets_others_follow(
    paced: Path, joins: Joins, tmp_path: Path
) -> None:
    run = Run(tmp_path, joins, paced, "invite")
    tokens = run.owner("invite", "--count", 2, "--run", run.file).split()
    first = run.join("first", "--invite", tokens[0])
    second = run.join("second")
    wait_until(lambda: first.status().get("own_updates", 0) > 2, "updates of the invited node")
    wait_until(lambda: second.status().get("updates", 0) > 2, "the other node follows")
    assert second.status()["own_updates"] == 0 and not second.status()["is_admitted"]
    assert second.wait_for_event("admission")["is_admitted"] is False
    assert not [event for event in second.events() if event["event"] == "worker_ready"]
    shown = call("status", "--data-dir", second.directory).stdout
    assert f"`sfnode run admit {author_of(second).hex()} --owner-key FILE`" in shown
    run.owner("admit", author_of(second).hex(), "--data-dir", first.directory)
    third = run.join("third", "--invite", tokens[1])
    nodes = [first, second, third]
    wait_until(lambda: all(has_steps(node, STEPS) for node in nodes), "the end of the run")
    wait_until(lambda: are_equal(*nodes), "equal digests")
    assert all(node.status()["own_updates"] > 0 and node.status()["rejected"] == 0 for node in nodes)
    digest = first.status()["state_digest"]
    assert [node.stop() for node in nodes] == [0, 0, 0]
    assert {log_verify(node.directory)["state_digest"] for node in nodes} == {digest}
    told = json.loads(call("run", "show", third.directory, "--json").stdout)
    assert sorted(each["kind"] for each in told["statements"]) == ["admit", "claim", "claim"]
    assert len(told["authors"]) == 3


def test_node__not_admitted_or_excluded__runs_no_worker_and_loads_no_model(
    paced: Path, joins: Joins, tmp_path: Path
) -> None:
    """It took the memory of a model, and minutes of a machine, for updates that nobody may count."""
    run = Run(tmp_path, joins, paced, "invite", steps=100_000)
    first = run.join("first", "--invite", run.owner("invite", "--run", run.file).strip())
    second = run.join("second", own_worker=True)
    second.wait_for_event("admission")
    wait_until(lambda: second.status().get("updates", 0) > 2, "it follows the run")
    assert children_of(second) == [] and second.status()["model"] is None
    shown = call("status", "--data-dir", second.directory)
    assert shown.code == 4 and "Until then the node follows the run, and loads no model" in shown.stdout
    run.owner("admit", author_of(second).hex(), "--data-dir", first.directory)
    wait_until(lambda: second.status().get("own_updates", 0) > 0, "updates of the admitted node")
    assert len(children_of(second)) > 0
    run.owner("exclude", author_of(second).hex(), "--from-step", 0, "--data-dir", first.directory)
    wait_until(lambda: children_of(second) == [], "the worker's end")
    wait_until(lambda: second.status()["excluded_from"] == 0, "the status after it")
    shown = call("status", "--data-dir", second.directory)
    assert shown.code == 5 and "excluded by the owner from step 0 on: the node follows the run" in shown.stdout
    held = second.status()["updates"]
    wait_until(lambda: second.status()["updates"] > held, "it follows the run again")
    assert [node.stop() for node in (first, second)] == [0, 0]


def children_of(node: JoinProcess) -> list[psutil.Process]:
    """The processes that the node has started."""
    assert node.process is not None
    children: list[psutil.Process] = psutil.Process(node.process.pid).children(recursive=True)
    return [child for child in children if child.name() != forked_children.ZYGOTE]
