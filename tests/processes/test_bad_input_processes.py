"""Real nodes in bad circumstances: no worker, no finite loss, no space, no reader, and signals at every stage."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from sfnode import demo
from sfnode.storage.data_directory import DataDirectory, decode_run_file
from sfnode.storage.record_store import Store
from tests.support.daemons import JoinProcess, free_port, log_verify, run_sfnode
from tests.support.fork_server import start
from tests.support.patience import wait_for_end
from tests.support.running_nodes import (
    STOP_S,
    Joins,
    address_in,
    children,
    is_alive,
    stop,
    wait_for_updates,
    wait_until,
)
from tests.support.small_disk import fill, small_disk

pytest_plugins = ("tests.support.node_fixtures",)
pytestmark = pytest.mark.process(is_long=True)


# --- signals ----------------------------------------------------------------------------------------------------


def test_join__signal_while_it_fetches_the_manifest__ends_it_well(joins: Joins, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        stuck = joins("stuck", "--bootstrap", address_in(tmp_path / "silent", silent.getsockname()[1]))
        refused = joins("refused", "--bootstrap", address_in(tmp_path / "absent", free_port()))
        connection, _ = silent.accept()
        refused.wait_for_event("dial_failed")
        stop(stuck, signal.SIGINT)
        stop(refused, signal.SIGTERM)
        connection.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_join__signal_while_the_worker_starts__ends_both(number: signal.Signals, run_file: Path, joins: Joins) -> None:
    node = joins("node", "--run", run_file, "--threads", "1")
    node.wait_for_event("started")
    wait_until(lambda: children(node.process), "a worker process")
    (worker_pid,) = children(node.process)
    time.sleep(0.5 if number is signal.SIGINT else 2.0)  # while it imports torch; while it loads the model
    stop(node, number)
    wait_until(lambda: not is_alive(worker_pid), "the end of the worker", limit_s=STOP_S)


def test_join__reader_of_its_output_leaves__ends_it_with_one_line(run_file: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "sfnode",
        "join",
        "--run",
        str(run_file),
        "--data-dir",
        str(tmp_path),
        "--relay",
        "--json",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    assert any(b'"started"' in line for line in process.stdout)
    process.stdout.close()
    assert wait_for_end(process, 10.0) == 1
    told = json.loads(process.stderr.read())["error"]
    assert told["message"] == "cannot write to the standard output: Broken pipe"
    process.stderr.close()


def test_join__started_without_standard_streams__says_what_it_would_say(tmp_path: Path) -> None:
    """As a shell starts it with `>&- <&-`; it ended with a traceback."""
    command = shlex.join([sys.executable, "-m", "sfnode", "join", "--run", "nothere.run"])
    ended = subprocess.run(
        ["sh", "-c", f"{command} >&- <&-"], check=False, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    said = "Error: cannot read the run file nothere.run: No such file or directory\n"
    assert (ended.returncode, ended.stderr) == (1, said)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux: /dev/full is a disk that is always full")
@pytest.mark.parametrize("buffering", ["", "1"])
def test_list__output_on_a_full_disk__says_so(buffering: str) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "sfnode", "list"],
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": buffering},  # as images of containers have it
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert ended.returncode == 1 and ended.stderr.startswith("Error: cannot write to the standard output: the disk is")


def test_eval__interrupt__ends_it_and_its_worker(run_file: Path, tmp_path: Path) -> None:
    Store(DataDirectory(tmp_path), decode_run_file(run_file)).close()
    process = start_command("eval", "--data-dir", str(tmp_path))
    wait_until(lambda: children(process), "a worker process")
    assert_interrupted(process)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_testnet__ended_early__tidies_up_and_ends_all_its_processes(tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM, which `docker stop` sends, left the folder of the training worker's socket."""
    process = start_command("testnet", "--nodes", "2", "--steps", "5000", "--dir", str(tmp_path))
    wait_until(lambda: len(children(process)) >= 2, "a worker and a node")
    assert_interrupted(process, number)


def start_command(*arguments: str) -> subprocess.Popen[bytes]:
    read, write = os.pipe()
    with open(os.devnull, "r+b") as nothing:
        process = start(list(arguments), stdin=nothing.fileno(), stdout=nothing.fileno(), stderr=write)
    os.close(write)
    process.stderr = open(read, "rb")  # noqa: SIM115 - it is the process's
    return process


def assert_interrupted(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGINT) -> None:
    """The signal ends the command without a traceback, and with it everything that it started."""
    family = children(process)
    process.send_signal(number)
    assert process.stderr is not None
    with process.stderr:
        try:
            assert wait_for_end(process, STOP_S) == 1
        finally:
            process.kill()
        stderr = process.stderr.read()
    assert stderr.endswith(b"Aborted!\n")
    assert b"Traceback" not in stderr
    wait_until(lambda: not any(map(is_alive, family)), "the end of its processes", limit_s=STOP_S)


# --- the worker -------------------------------------------------------------------------------------------------


def test_join__worker_killed_in_mid_run__is_started_again_and_the_node_goes_on(
    run_file: Path, joins: Joins, tmp_path: Path
) -> None:
    port = free_port()
    address = address_in(tmp_path / "node", port)
    node = joins("node", "--run", run_file, "--listen", f"/ip4/127.0.0.1/tcp/{port}", "--threads", "1")
    neighbour = joins("neighbour", "--bootstrap", address, "--relay")
    wait_for_updates(node)
    neighbour.wait_for_event("peer_joined")
    (worker_pid,) = children(node.process)
    os.kill(worker_pid, signal.SIGKILL)
    lost = node.wait_for_event("worker_lost")
    assert "SIGKILL" in lost["reason"] and "memory" in lost["reason"]
    wait_until(lambda: node.status()["peers"] == 1, "a status with the neighbour")
    wait_until(lambda: sum(event["event"] == "worker_ready" for event in node.events()) == 2, "a second worker")
    wait_for_updates(node)
    assert not [event for event in node.events() + neighbour.events() if event["event"] == "peer_left"]
    wait_until(
        lambda: neighbour.status()["updates"] >= node.status()["own_updates"] - 5, "all updates at the neighbour"
    )
    assert node.status()["worker_restarts"] == 1
    stop(node, signal.SIGTERM)
    assert log_verify(tmp_path / "node")["ok"]


def test_join__worker_that_cannot_start__is_reported_and_tried_again(
    run_file: Path, joins: Joins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "torch.py").write_text("raise SystemExit('libtorch.so: cannot open shared object file')")
    monkeypatch.setenv("PYTHONPATH", str(broken))
    node = joins("node", "--run", run_file)
    lost = node.wait_for_event("worker_lost")
    assert "ended at once (exit code 1; its last output says why)" in lost["reason"]
    wait_until(lambda: sum(event["event"] == "worker_lost" for event in node.events()) >= 2, "a second attempt")
    pauses = [event["pause_s"] for event in node.events() if event["event"] == "worker_lost"]
    assert pauses[:2] == [2.0, 4.0]
    assert "libtorch.so: cannot open shared object file" in node.logs[-1].read_text()
    assert node.status()["own_updates"] == 0
    stop(node, signal.SIGTERM)


def test_join__loss_that_is_not_finite__skips_steps_and_goes_on(joins: Joins, worker: Path, tmp_path: Path) -> None:
    model = shutil.copytree(demo.model_folder(), tmp_path / "model")
    tensors = {name: values.astype(np.float32) for name, values in load_file(model / "model.safetensors").items()}
    tensors["model.decoder.layers.0.fc1.weight"][:] = 3e38  # `init` refuses what is not finite itself
    save_file(tensors, model / "model.safetensors", {"format": "pt"})
    run = tmp_path / "nan.run"
    task = ("--task", "embedded:reviews", "--steps", "10000", "--admission", "open", "--plain")
    assert run_sfnode("init", "--model", str(model), *task, "--out", str(run)).returncode == 0
    node = joins("node", "--run", run, "--model", model, "--data", demo.data_file("reviews"), "--worker-socket", worker)
    skipped = node.wait_for_event("step_skipped")
    assert "not finite" in skipped["reason"] and skipped["step"] == 0
    wait_until(lambda: node.status().get("skipped_steps", 0) >= 3, "more skipped steps")
    assert node.status()["own_updates"] == 0 and node.status()["worker_restarts"] == 0
    stop(node, signal.SIGTERM)


# --- space ------------------------------------------------------------------------------------------------------


def test_join__disk_fills_while_it_trains__stops_clearly_and_loses_nothing(
    run_file: Path, paced: Path, joins: Joins, tmp_path: Path
) -> None:
    arguments = ("--run", run_file, "--worker-socket", paced)
    with small_disk(tmp_path / "disk", kilobytes=8_192) as disk:
        node = JoinProcess(directory=disk / "node", arguments=[*map(str, arguments)])
        log = tmp_path / "full.log"
        node.start(log)
        wait_for_updates(node)
        filler = fill(disk)
        assert node.process is not None
        assert wait_for_end(node.process, 20.0) == 1
        text = log.read_text()
        assert "Traceback" not in text
        assert node.last_words().startswith("Error: cannot ") and "disk is full" in node.last_words()
        acknowledged = [event["updates"] for event in node.events() if event["event"] == "progress"][-1]
        filler.unlink()
        assert log_verify(disk / "node")["updates"] >= acknowledged > 0
        node.start(tmp_path / "again.log")
        wait_for_updates(node)
        stop(node, signal.SIGTERM)
        assert log_verify(disk / "node")["ok"]
