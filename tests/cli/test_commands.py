"""The command line as people and programs use it: help, JSON, and what the reporting commands say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from protocol.crypto.keys import Signer
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import sign_manifest
from sfnode.cli import cli
from sfnode.network.memory_guard import MemoryState
from sfnode.network.policy.addresses import peer_of_author
from sfnode.run.node_toml import write_node_file
from sfnode.status import Status
from sfnode.storage.data_directory import STATUS_FILE, DataDirectory
from sfnode.storage.record_store import Store
from tests import REPOSITORY
from tests.support.cli_calls import assert_teaches, call
from tests.support.commands import commands_below
from tests.support.manifests import OWNER, small_manifest
from tests.support.statuses import DETAIL, blank, changed

SIGNED = sign_manifest(small_manifest(), OWNER)
ALICE, BOB = (Signer(name.ljust(32, b".")) for name in (b"alice", b"bob"))
STATUS = changed(
    blank(Status),
    run="test", run_id=SIGNED.manifest.run_id.hex(), author=ALICE.author.hex(), pid=os.getpid(), step=7, steps=40,
    updates=13, authors=2, own_updates=7, skipped_steps=1, peers=3, expects_peers=True, is_training=True,
    loss=0.5, forward_rows=112, ledger_root="aa" * 32, state_digest="bb" * 32,
    bytes_in=1_234, bytes_out=56_789, payload_bytes=999, ignored=2, admission="open", is_admitted=True,
    memory=MemoryState(bytes_max=512 << 20, resident_bytes=97 << 20), disk_free_bytes=41_500_000_000,
)  # fmt: skip

NAMES = ["the model alone", "the run now", "own data alone"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The data directory of a node that has stopped: two authors, ten steps each."""
    store = Store(DataDirectory(tmp_path / "node"), SIGNED)
    codec = EnvelopeCodec(SIGNED.manifest)
    store.add(
        [codec.seal(who, step, (step - 5,)).record for step in range(10) for who in (ALICE, BOB)], is_durable=True
    )
    store.close()
    return tmp_path / "node"


@pytest.fixture
def running(directory: Path) -> Iterator[Path]:
    """The same directory while a node holds it and has just reported."""
    store = Store(DataDirectory(directory), SIGNED)
    report(directory, changed(STATUS, time=time.time()))
    yield directory
    store.close()


def report(directory: Path, status: Status) -> None:
    (directory / STATUS_FILE).write_text(json.dumps(status.to_json()))


# --- help -------------------------------------------------------------------------------------------------------


ALL = dict(commands_below(cli))
LEAVES = [path for path, command in ALL.items() if not isinstance(command, click.Group)]


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help__every_command__explains_itself_and_each_option(path: tuple[str, ...]) -> None:
    outcome = call(*path, "--help")
    assert outcome.code == 0 and outcome.stdout.startswith("Usage: ")
    options = [option for option in ALL[path].params if isinstance(option, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help__every_command_that_does_something__shows_an_example(path: tuple[str, ...]) -> None:
    assert f" sfnode {' '.join(path)} " in call(*path, "--help").stdout


def test_help__program__names_every_command_and_its_version() -> None:
    outcome = call("--help")
    assert outcome.code == 0
    assert all(f"\n  {name} " in outcome.stdout for name in cli.list_commands(click.Context(cli)))
    assert call("--version").stdout.startswith("sfnode, version ")
    assert call("-h").stdout == outcome.stdout


def test_help__unknown_command_or_option__says_where_help_is() -> None:
    assert_teaches(call("jion"), "No such command 'jion'")
    outcome = call("join", "--bootstraps", "x")
    assert_teaches(outcome, "No such option", "--bootstraps")
    assert "--help" in outcome.stderr


def test_program__run_as_a_module__fails_with_one_line_and_code_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sfnode", "log", "verify", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    expected = f"Error: {tmp_path} is not a node's data directory: it has no manifest.run\n"
    assert (result.returncode, result.stdout, result.stderr) == (1, "", expected)


# --- status -----------------------------------------------------------------------------------------------------


def test_status__running_node__is_told_as_text_and_as_json(running: Path) -> None:
    text = call("status", "--data-dir", running)
    assert text.code == 0
    for part in (
        "test (",
        "step 7/40",
        "13 updates of 2 authors",
        "own      7",
        "peers    3",
        "0.5000",
        "97 MiB of 512",
        "1,234 bytes in",
        "bb" * 32,
    ):
        assert part in text.stdout
    told = json.loads(call("status", "--data-dir", running, "--json").stdout)
    assert {**told, "time": 0.0} == STATUS.to_json()


def test_status__node_that_has_compared__shows_what_the_run_has_given(running: Path) -> None:
    report(running, changed(STATUS, time=time.time(), detail=DETAIL))
    assert "\ngain     the model alone 50.0 %, the run now 74.0 %, " in call("status", "--data-dir", running).stdout
    told = json.loads(call("status", "--data-dir", running, "--json").stdout)
    after: dict[str, object] = {
        "step": 120,
        "accuracy": 0.74,
        "loss": 0.69 - 120 / 800,
        "rows": 200,
        "reward": None,
        "answers": [],
        "spread": None,
        "removed": "",
    }
    assert told["detail"]["gain"]["after"] == after


@pytest.mark.parametrize(
    ("changes", "code", "part"),
    [
        ({"peers": 0}, 3, "none is connected"),
        ({"peers": 0, "is_admitted": False}, 3, "none is connected"),
        ({"is_admitted": False, "admission": "invite"}, 4, "not admitted: ask the owner"),
        ({"is_admitted": False, "admission": "invite", "is_invitation_used": True}, 4, "the string to join is used"),
        ({"excluded_from": 3}, 5, "excluded by the owner from step 3 on"),
        (
            {"peers": 0, "unreached": "/ip4/1.2.3.4/tcp/1: connection refused"},
            3,
            "cannot reach /ip4/1.2.3.4/",
        ),
        ({"paused": "by `sfnode pause`"}, 6, "this node is paused: by `sfnode pause`"),
        ({"trouble": "the training worker was lost"}, 6, "measures nothing now: the training worker was lost"),
    ],
)
def test_status__node_that_is_not_well__has_a_code_and_says_who_finds_out_why(
    changes: dict[str, object], code: int, part: str, running: Path
) -> None:
    report(running, changed(STATUS, time=time.time(), **changes))
    for outcome in (call("status", "--data-dir", running), call("status", "--data-dir", running, "--json")):
        assert outcome.code == code, outcome
        assert part in outcome.stderr and f"sfnode doctor --data-dir {running}" in outcome.stderr
    assert json.loads(outcome.stdout)["author"] == STATUS.node.author
    assert call("status", "--data-dir", running, "--running").code == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"peers": 0, "expects_peers": False},  # the first node of a run
        {"peers": 0, "is_finished": True, "is_over": True},
        {"is_admitted": False, "admission": "invite", "is_training": False},  # a relay
        {"is_finished": True, "is_over": True, "paused": "by `sfnode pause`", "trouble": "the worker was lost"},
        {"unreached": "/ip4/1.2.3.4/tcp/1: connection refused"},  # others are there
    ],
)
def test_status__node_that_lacks_what_it_does_not_need__is_well(changes: dict[str, object], running: Path) -> None:
    report(running, changed(STATUS, time=time.time(), **changes))
    outcome = call("status", "--data-dir", running)
    assert (outcome.code, outcome.stderr) == (0, "")


def test_status__node_that_stopped__fails_and_says_how_to_start_it(directory: Path) -> None:
    report(directory, changed(STATUS, time=time.time()))
    assert_teaches(call("status", "--data-dir", directory, "--json"), "no node runs", str(directory), "sfnode join")
    write_node_file(DataDirectory(directory), {})
    assert_teaches(call("status", "--data-dir", directory), f"sfnode start --data-dir {directory}")


def test_status__node_that_never_began__says_why_not(tmp_path: Path) -> None:
    DataDirectory(tmp_path).end.write("--max-memory is 100 MB")
    assert_teaches(call("status", "--data-dir", tmp_path), "no node runs", ": --max-memory is 100 MB")


def test_status__folder_with_a_space_in_its_name__is_quoted_in_the_command_to_paste(tmp_path: Path) -> None:
    (place := tmp_path / "my node").mkdir()
    DataDirectory(place).end.write("it was stopped")
    assert_teaches(call("status", "--data-dir", place), f"sfnode join --data-dir '{place}' ...")


def test_status__node_that_ended__says_how(directory: Path) -> None:
    DataDirectory(directory).end.expect()
    assert_teaches(call("status", "--data-dir", directory), "no node runs", "it was killed, ran out of memory, crashed")
    DataDirectory(directory).end.write("cannot listen on port 4001: address already in use")
    assert_teaches(call("status", "--data-dir", directory), "it ended at 20", ": cannot listen on port 4001")
    DataDirectory(directory).end.write("")
    assert_teaches(call("status", "--data-dir", directory), "it ended in good order at 20")


def test_status__node_that_no_longer_reports__fails_and_names_its_process(running: Path) -> None:
    report(running, changed(STATUS, time=time.time() - 60))
    assert_teaches(call("status", "--data-dir", running), str(running), f"pid {os.getpid()}", "60 s", "hangs")


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"step": 1}'])
def test_status__unreadable_report__fails_and_says_so(content: str, running: Path) -> None:
    (running / STATUS_FILE).write_text(content)
    assert_teaches(call("status", "--data-dir", running), str(running / STATUS_FILE), "Try again")


def test_status__no_report_yet__fails_and_says_so(running: Path) -> None:
    """`pause` and `resume` said that no node runs there."""
    (running / STATUS_FILE).unlink()
    assert_teaches(call("status", "--data-dir", running), str(running), "still reads its disk", "Try again")
    for command in ("pause", "resume"):
        assert json.loads(call(command, "--data-dir", running, "--json").stdout)["is_running"]
        assert "has not said that it follows" in call(command, "--data-dir", running).stdout


# --- log --------------------------------------------------------------------------------------------------------


def test_log_verify__healthy_ledger__is_told_as_text_and_as_json(running: Path) -> None:
    told = json.loads(call("log", "verify", running, "--json").stdout)
    assert told["ok"] is True and told["problem"] == ""
    assert (told["updates"], told["authors"], told["steps"], told["void_slots"]) == (20, 2, 10, 0)
    assert len(told["state_digest"]) == len(told["ledger_root"]) == len(told["run_id"]) == 64
    text = call("log", "verify", running)
    assert text.code == 0
    assert f"state_digest  {told['state_digest']}\n" in text.stdout and "ok            yes\n" in text.stdout


def test_log_show__newest_records__come_in_the_order_of_their_steps(directory: Path) -> None:
    lines = call("log", "show", directory, "--limit", 3, "--json").stdout.splitlines()
    shown = [json.loads(line) for line in lines]
    assert [record["step"] for record in shown] == [8, 9, 9]
    assert {record["author"] for record in shown} == {ALICE.author.hex(), BOB.author.hex()}
    assert [record["scalars"] for record in shown] == [[3], [4], [4]]
    assert all(len(record["seed"]) == 16 for record in shown)
    assert len(call("log", "show", directory, "--limit", 0).stdout.splitlines()) == 20
    assert len(call("log", "show", directory).stdout.splitlines()) == 20
    early = call("log", "show", directory, "--at-step", 3, "--json").stdout.splitlines()
    assert [json.loads(line)["step"] for line in early] == [0, 0, 1, 1, 2, 2]
    assert_teaches(call("log", "show", directory, "--at-step", "last"), "'last'", "neither the number of a step nor")
    assert_teaches(
        call("log", "show", directory, "--at-step", "best"), "no best step is known", "--eval-data and --eval-every"
    )
    assert_teaches(call("log", "show", directory, "--limit", -1), "--limit", "x>=0")


# --- id ---------------------------------------------------------------------------------------------------------


def test_id__new_key__is_shown_alike_as_text_and_as_json(tmp_path: Path) -> None:
    key = tmp_path / "identity.key"
    made = json.loads(call("id", "new", "--out", key, "--json").stdout)
    shown = json.loads(call("id", "show", "--data-dir", tmp_path, "--json").stdout)
    assert made == shown
    assert shown["peer"] == peer_of_author(bytes.fromhex(shown["author"]))
    assert shown["file"] == str(key)
    assert key.stat().st_mode & 0o777 == 0o600
    text = call("id", "show", "--key", key)
    assert shown["author"] in text.stdout and shown["peer"] in text.stdout and text.stderr == ""


def test_id__key_that_others_can_read__is_refused_with_what_to_do(tmp_path: Path) -> None:
    key = tmp_path / "identity.key"
    call("id", "new", "--out", key)
    for mode in (0o644, 0o640, 0o604, 0o620):
        key.chmod(mode)
        assert_teaches(call("id", "show", "--key", key), "other users", f"chmod 600 {key}", "new one")
    key.chmod(0o600)
    assert call("id", "show", "--key", key).code == 0


# --- init, eval -------------------------------------------------------------------------------------------------


def test_run__from_init_to_export__tells_the_same_in_json(tmp_path: Path) -> None:
    out = tmp_path / "a.run"
    arguments = ("--model", "embedded:tiny-opt", "--task", "embedded:reviews", "--steps", 8, "--out", out, "--json")
    made = json.loads(call("init", *arguments).stdout)
    assert made["file"] == str(out) and made["name"] == "a" and made["model"] == "embedded:tiny-opt"
    node = tmp_path / "node"
    own = ("--run", out, "--basis", made["basis"], "--invite", made["invitation"], "--data-dir", node)
    joined = call("join", *own, "--exit-when-finished", "--threads", 1, "--json")
    assert joined.code == 0, joined
    events = [json.loads(line) for line in joined.stdout.splitlines()]
    assert {event["event"] for event in events} >= {"started", "worker_ready", "progress", "finished"}
    plan = next(event for event in events if event["event"] == "memory_planned")
    assert plan["training_peak"] > plan["load_peak"] > 300 << 20 and plan["node"] > 100 << 20
    verified = json.loads(call("log", "verify", node, "--json").stdout)
    assert verified["run_id"] == made["run_id"] and verified["updates"] == 8
    told = json.loads(call("eval", "--data-dir", node, "--compare", "--json").stdout)
    assert told["state_digest"] == verified["state_digest"]
    assert list(told) == ["before", "after", "own", "step", "state_digest"]  # the model alone, now, its examples alone
    assert told["before"]["rows"] == told["after"]["rows"] > 0
    assert told["after"]["loss"] < told["before"]["loss"] - 0.1
    lines = call("eval", "--data-dir", node, "--compare").stdout.splitlines()
    assert [line[:15].rstrip() for line in lines if " %, F1 " in line] == NAMES
    exported = json.loads(call("export", "--data-dir", node, "--out", tmp_path / "model", "--json").stdout)
    assert exported == {
        "folder": str(tmp_path / "model"),
        "is_adapter": False,
        "state_digest": verified["state_digest"],
    }
    assert (tmp_path / "model" / "model.safetensors").is_file()


def test_main__on_windows__says_so_before_anything_is_imported() -> None:
    program = "import sys; sys.platform = 'win32'; sys.modules['fcntl'] = None; import sfnode.__main__"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: sfnode needs Linux or macOS") and "Traceback" not in done.stderr
