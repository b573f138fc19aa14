"""`sfnode doctor`: all is well around a real node; and each thing that can be wrong gives its line and what to do."""

from __future__ import annotations

import json
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.run.manifest import SignedManifest
from sfnode.demo import model_folder
from sfnode.doctor import clock_and_port_checks, data_directory_check, memory_plan, model_check
from sfnode.doctor.findings import Finding, Verdict, in_thread, ok
from sfnode.network.policy.addresses import parse_bootstrap, peer_of_author
from sfnode.run.run_address import RunAddress, join_string
from sfnode.storage.data_directory import LEDGER_FILE, NODE_FILE, DataDirectory
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from sfnode.storage.record_store import Store
from sfnode.worker_protocol.training_config import DeviceReport
from tests.support.cli_calls import Outcome, call
from tests.support.daemons import MODEL, demo_run, free_port, run_sfnode, write_run
from tests.support.network_nodes import seed
from tests.support.running_nodes import Joins, address_in

PEER = peer_of_author(bytes(31) + b"\1")
DEVICES = DeviceReport(torch="2.9", threads=2, cuda=(), mps=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A relay that runs, its run file, its address."""

    signed: SignedManifest
    run_file: Path
    directory: Path
    address: str


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("doctor")
    signed, port = demo_run(steps=8), free_port()
    write_run(signed, folder / "a.run")
    address = address_in(folder / "relay", port)
    with Joins(folder) as joins:
        node = joins("relay", "--relay", "--run", folder / "a.run", "--listen", f"/ip4/127.0.0.1/tcp/{port}")
        node.wait_for_event("started")
        yield Running(signed=signed, run_file=folder / "a.run", directory=folder / "relay", address=address)


def examine(*arguments: object) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit code and findings by check (a bootstrap's without its address)."""
    outcome = call("doctor", "--json", *arguments)
    return outcome.code, findings_in(outcome.stdout, outcome.stderr, is_ok=outcome.code == 0)


def findings_in(stdout: str, stderr: str, *, is_ok: bool) -> dict[str, dict[str, str]]:
    assert "Traceback" not in stderr, stderr
    told: dict[str, Any] = json.loads(stdout)
    assert told["ok"] is is_ok
    return {row["check"].split(" /")[0]: row for row in told["checks"]}


def assert_fails(found: dict[str, dict[str, str]], check: str, *parts: str) -> None:
    """That line failed, and text and advice together hold all parts."""
    row = found[check]
    assert row["verdict"] == "fail" and row["advice"], row
    missing = [part for part in parts if part not in f"{row['text']} -> {row['advice']}"]
    assert not missing, f"{missing} not in {row}"


# --- around a real node -----------------------------------------------------------------------------------------


@pytest.mark.process
def test_doctor__bootstrap_of_a_running_node__all_is_well(running: Running, tmp_path: Path) -> None:
    """As a process of its own, whose two children with torch are forks."""
    listen = f"/ip4/127.0.0.1/tcp/{free_port()}"
    arguments = ("--bootstrap", running.address, "--listen", listen, "--data-dir", str(tmp_path / "new"))
    done = run_sfnode("doctor", "--json", *arguments)
    found = findings_in(done.stdout, done.stderr, is_ok=done.returncode == 0)
    assert done.returncode == 0, found
    assert {name: row["verdict"] for name, row in found.items()} == {
        "disk space": "ok",
        "disk writing": "ok",
        "open files": "ok",
        "data directory": "ok",
        "privacy": "ok",
        "identity": "ok",
        "ledger": "ok",
        "listen": "warning",  # loopback: this machine alone
        "bootstrap": "ok",
        "clock": "ok",
        "reachable from outside": "ok",
        "device": "ok",
        "number formats": "ok",
        "model files": "ok",
        "tokens": "ok",
        "memory plan": "ok",
        "run size": "ok",
    }
    assert running.signed.manifest.run_id.hex()[:16] in found["bootstrap"]["text"]
    assert "clocks of 1 peer" in found["clock"]["text"]
    assert f"reached port {listen.rpartition('/')[2]} at 127.0.0.1" in found["reachable from outside"]["text"]
    assert "of memory for its coefficients" in found["run size"]["text"]
    assert "weights" in found["memory plan"]["text"] and "copies" not in found["memory plan"]["text"]
    assert not (tmp_path / "new").exists()


@pytest.mark.process
def test_doctor__directory_of_the_running_node__says_who_holds_it_and_its_port(running: Running) -> None:
    port = running.address.split("/")[4]
    arguments = ("--data-dir", running.directory, "--relay", "--listen", f"/ip4/127.0.0.1/tcp/{port}")
    code, found = examine(*arguments, "--bootstrap", running.address)
    assert code == 0, found
    assert "a node runs on it, pid" in found["data directory"]["text"]
    assert found["data directory"]["verdict"] == "warning" and "no peer" in found["data directory"]["advice"]
    assert "the node on this data directory listens there" in found["listen"]["text"]
    assert {"device", "model files", "memory plan"} & found.keys() == set()


@pytest.mark.process
def test_doctor__node_that_met_peers__asks_those_when_no_bootstrap_is_given(running: Running, tmp_path: Path) -> None:
    directory = tmp_path / "node"

    def remember(address: str) -> None:
        transport, _, peer = address.partition("/p2p/")
        row = {"peer": peer, "addresses": [transport], "last_success_unix_ms": 5, "failures": 0, "is_bootstrap": False}
        with closing(Store(DataDirectory(directory), running.signed)) as store:
            store.save("known_peers", json.dumps([row]))

    remember(running.address)
    code, found = examine("--data-dir", directory, "--relay")
    assert (code, found["bootstrap"]["verdict"]) == (0, "ok"), found
    remember(f"/ip4/127.0.0.1/tcp/{free_port()}/p2p/{PEER}")
    code, found = examine("--data-dir", directory, "--relay")
    assert_fails(found, "bootstrap", "none of the 1 peers", "connection refused", "--bootstrap")


@pytest.mark.process
def test_doctor__text__has_a_mark_for_each_line_and_torch_is_left_alone_for_a_relay(running: Running) -> None:
    script = "import sys; from sfnode.cli import main\ntry: main()\nfinally: assert 'torch' not in sys.modules"
    command = [sys.executable, "-c", script, "doctor", "--relay", "--run", str(running.run_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done
    lines = done.stdout.splitlines()
    assert all(line.startswith(("ok    ", "?     ", "      -> ")) for line in lines)
    assert lines[-1].startswith("ok    doctor: ")


# --- bootstraps that do not work --------------------------------------------------------------------------------


@pytest.mark.process
def test_doctor__bootstraps_that_do_not_work__each_line_names_the_stage(running: Running, tmp_path: Path) -> None:
    good = running.address
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        other.settimeout(20)
        cases = {
            "203.0.113.7:4001": ("is not a string to join", "copy it whole"),
            f"/dns4/nowhere.invalid/tcp/4001/p2p/{PEER}": ("nowhere.invalid does not resolve", "name server"),
            f"/ip4/127.0.0.1/tcp/{free_port()}/p2p/{PEER}": ("connection refused", "start that node"),
            good.replace(good.rpartition("/")[2], PEER): ("another node answers", "present address"),
        }
        for address, parts in cases.items():
            code, found = examine("--bootstrap", address, "--relay", "--data-dir", tmp_path)
            assert code == 1
            assert_fails(found, next(name for name in found if name.startswith("bootstrap")), *parts)
            assert found["reachable from outside"]["verdict"] == "unknown"


def test_doctor__malformed_addresses__are_findings_among_the_others(tmp_path: Path) -> None:
    node = f"/ip4/127.0.0.1/tcp/{free_port()}/p2p/{PEER}"
    known = RunAddress(run_id=bytes(32), nodes=(parse_bootstrap(node),), run_model="m", run_data="private")
    string = join_string(known)
    cases = {string[:60]: "cut off", f"sfnode:12ab@{node}": "64 hexadecimal digits", "x": "not a string to join"}
    for malformed, part in cases.items():
        found = relay(malformed, "--bootstrap", node, "--data-dir", tmp_path)
        assert_fails(found, "bootstrap address", part, "copy it whole")
        assert_fails(found, "bootstrap", "connection refused")


@pytest.mark.process
def test_doctor__remembered_settings_that_are_wrong__are_a_finding(directory: Path) -> None:
    (directory / NODE_FILE).write_text('relay = true\nbootstrap = ["203.0.113.7:4001"]\n')
    found = relay("--data-dir", directory)
    assert_fails(found, "settings", NODE_FILE, "203.0.113.7:4001", "sfnode config set")
    assert found["bootstrap"]["verdict"] == "unknown" and found["ledger"]["verdict"] == "ok"


@pytest.mark.process
def test_doctor__bootstrap_of_another_run__is_told_apart(running: Running, tmp_path: Path) -> None:
    write_run(demo_run(steps=16), tmp_path / "other.run")
    code, found = examine("--bootstrap", running.address, "--relay", "--run", tmp_path / "other.run")
    assert code == 1
    assert_fails(found, "bootstrap", "another run", running.signed.manifest.run_id.hex()[:16], "--data-dir")
    code, found = examine("--data-dir", running.directory, "--relay", "--run", tmp_path / "other.run")
    assert_fails(found, "data directory", "belongs to run 'test'", "another --data-dir")


@pytest.mark.process
def test_doctor__silent_bootstrap__ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfnode.network.bounds.DIAL_S", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        address = f"/ip4/127.0.0.1/tcp/{silent.getsockname()[1]}/p2p/{PEER}"
        code, found = examine("--bootstrap", address, "--relay", "--data-dir", tmp_path)
    assert code == 1
    assert_fails(found, "bootstrap", "no answer within", "firewall")


# --- the machine ------------------------------------------------------------------------------------------------


def relay(*arguments: object) -> dict[str, dict[str, str]]:
    """Findings without a network and without training."""
    return examine("--relay", *arguments)[1]


def test_doctor__port_that_is_taken__names_the_program(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        address = f"/ip4/127.0.0.1/tcp/{taken.getsockname()[1]}"
        found = relay("--listen", address)
        assert_fails(found, "listen", "Address already in use", "another port")
        if Path("/proc/net/tcp").exists():
            assert "(pid " in found["listen"]["text"]
    assert_fails(relay("--listen", "0.0.0.0:4001"), "listen 0.0.0.0:4001", "/ip4/0.0.0.0/tcp/PORT")


def test_doctor__clock__is_checked_against_sense_and_then_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clock_and_port_checks.check_clock([0.2, -0.1, 900.0]).verdict is Verdict.OK
    finding = clock_and_port_checks.check_clock([120.0, 119.0])
    assert finding.verdict is Verdict.WARNING and "2 min 0 s behind" in finding.text
    monkeypatch.setattr(clock_and_port_checks, "time", SimpleNamespace(time=lambda: 1_000.0))
    for finding in map(clock_and_port_checks.check_clock, ([], [0.0], [1_800_000_000.0])):
        assert finding.verdict is Verdict.FAIL and "1970-01-01" in finding.text and "timedatectl" in finding.advice


def test_doctor__disk__space_and_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_directory_check.check_space(tmp_path / "new" / "er", 0).verdict is Verdict.OK
    finding = data_directory_check.check_space(tmp_path, 1 << 60)
    assert finding.verdict is Verdict.FAIL and "--data-dir" in finding.advice

    def fail(*_arguments: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("sfnode.doctor.data_directory_check.os.fsync", fail)
    finding = data_directory_check.check_writing(tmp_path)
    assert finding.verdict is Verdict.FAIL and "Input/output error" in finding.text and str(tmp_path) in finding.advice
    assert list(tmp_path.iterdir()) == []


def test_doctor__few_open_files_allowed__says_which_limit_to_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (256, 256))
    finding = clock_and_port_checks.check_files()
    assert finding.verdict is Verdict.WARNING
    assert "at most 256, with 160 connections" in finding.text and "hard limit" in finding.advice


@pytest.mark.trio
async def test_doctor__check_that_hangs__ends_at_its_limit() -> None:
    gate, writer = socket.socketpair()
    with gate, writer:

        def hang() -> Finding:
            gate.recv(1)
            return ok("x", "too late")

        finding = await in_thread("disk writing", 0.05, hang)
        writer.send(b"x")
    assert finding.verdict is Verdict.FAIL and "no answer within" in finding.text


# --- data directories -------------------------------------------------------------------------------------------


@pytest.fixture
def directory(running: Running, tmp_path: Path) -> Path:
    with closing(Store(DataDirectory(tmp_path / "node"), running.signed)):
        KeyFile(tmp_path / "node" / IDENTITY_FILE).made_seed()
    return tmp_path / "node"


def test_doctor__folder_without_a_node__says_so(tmp_path: Path) -> None:
    assert_fails(relay("--data-dir", tmp_path.parent), "data directory", "not a node's data directory", "--bootstrap")


@pytest.mark.process
def test_doctor__key_that_others_can_read_or_that_is_not_one__fails(directory: Path) -> None:
    key = directory / IDENTITY_FILE
    key.chmod(0o644)
    assert_fails(relay("--data-dir", directory), "identity", str(key), f"chmod 600 {key}")
    key.chmod(0o600)
    key.write_text("no key")
    assert_fails(relay("--data-dir", directory), "identity", "64 hexadecimal digits", "new author")


@pytest.mark.process
def test_doctor__damaged_ledger__says_what_to_move_away(directory: Path) -> None:
    (directory / LEDGER_FILE).write_bytes(b"no database" * 1_000)
    assert_fails(relay("--data-dir", directory), "ledger", "damaged", f"move {directory / LEDGER_FILE} away")


# --- device, model, memory --------------------------------------------------------------------------------------


@pytest.mark.process
def test_doctor__model_that_is_not_the_runs__names_the_file(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_check, "find_devices", lambda: DEVICES)
    monkeypatch.setattr(model_check, "check_tokens", lambda _folder, _task: ok("tokens", "as the run has them"))
    copy = tmp_path / "copy"
    shutil.copytree(model_folder(), copy)
    arguments = ("--run", running.run_file, "--model", copy, "--data-dir", tmp_path / "new")
    assert examine(*arguments)[0] == 0
    with (copy / "model.safetensors").open("ab") as file:
        file.write(b"\0")
    others = examine(*arguments)[1]["model files"]
    assert others["verdict"] == "warning" and "may be the same" in others["text"] and MODEL in others["advice"]
    (copy / "added_tokens.json").write_text("{}")
    assert_fails(examine(*arguments)[1], "model files", "added_tokens.json", "would be loaded with it: remove it")
    (copy / "added_tokens.json").unlink()
    (copy / "model.safetensors").unlink()
    assert_fails(examine(*arguments)[1], "model files", "is missing", MODEL)
    assert_fails(examine(*arguments[:3], tmp_path / "none")[1], "model files", "no such folder", "--model FOLDER")
    found = examine(*arguments[:3], "facebook/opt-125m")[1]
    assert found["model files"]["verdict"] == "warning" and found["memory plan"]["verdict"] == "unknown"


@pytest.mark.parametrize(
    ("found", "device", "dtype", "parts"),
    [
        ("torch not installed", "auto", "fp32", ("torch not installed", "-m pip install 'sfnode[train]'", "--relay")),
        (DEVICES, "cuda", "fp32", ("no CUDA device", "--device cpu")),
        (DEVICES, "mps", "fp32", ("no Apple GPU", "--device cpu")),
        (
            DeviceReport(torch="2.9", threads=2, cuda=(), mps=True),
            "mps",
            "int4",
            ("CPUs and CUDA only", "--dtype int8"),
        ),
    ],
)
def test_doctor__device_that_cannot_be_used__fails(
    found: DeviceReport | str, device: str, dtype: str, parts: tuple[str, ...]
) -> None:
    finding = model_check.check_device(found, device, dtype)
    assert finding.verdict is Verdict.FAIL
    assert all(part in f"{finding.text} -> {finding.advice}" for part in parts), finding


def test_doctor__build_for_cards_without_one__is_well_and_says_that_none_is_found() -> None:
    for torch, is_said in (("2.13.0+cu130", True), ("2.13.0+cpu", False)):
        finding = model_check.check_device(replace(DEVICES, torch=torch), "auto", "fp32")
        assert finding.verdict is Verdict.OK
        assert ("finds no NVIDIA card" in finding.text) is is_said


def test_doctor__torch_that_crashes__is_a_line_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = SimpleNamespace(returncode=-11, stdout="", stderr="line\nlibcuda: not found\n")
    monkeypatch.setattr("sfnode.doctor.model_check.Program.run", lambda *_arguments, **_named: ended)
    assert model_check.find_devices() == "torch cannot be used: libcuda: not found"
    for line in ("driver: leaked 2 contexts", "{}"):
        ended.returncode, ended.stdout = 0, f"{{}}\n{line}\n"
        assert model_check.find_devices() == f"torch cannot be used: {line}"


def test_doctor__memory_plan__is_held_against_what_is_free(running: Running) -> None:
    manifest = running.signed.manifest
    plans = {dtype: memory_plan.plan_memory(manifest, model_folder(), dtype) for dtype in ("fp32", "bf16", "int8")}
    assert plans["fp32"].weights == 2 * plans["bf16"].weights > 2 * plans["int8"].weights
    assert memory_plan.judge_memory(plans["fp32"], 1 << 40, None).verdict is Verdict.OK
    finding = memory_plan.judge_memory(plans["fp32"], 1 << 20, None)
    assert finding.verdict is Verdict.FAIL and "--dtype" in finding.advice
    assert memory_plan.judge_memory(plans["fp32"], 1 << 40, 1_000).verdict is Verdict.FAIL
    assert memory_plan.judge_memory(plans["fp32"], None, None).verdict is Verdict.UNKNOWN
    long = replace(manifest, steps=10 * manifest.method.epoch_steps)
    assert memory_plan.plan_memory(long, model_folder(), "fp32").closed > plans["fp32"].closed == 0


def test_doctor__wrong_run_file__is_an_error_like_everywhere(tmp_path: Path) -> None:
    outcome: Outcome = call("doctor", "--run", tmp_path / "none.run")
    assert "cannot read the run file" in outcome.error
    assert seed(1) != seed(2)
