"""Nodes for tests: in this process, and as real processes; a small run of the embedded model; free ports."""

from __future__ import annotations

import functools
import io
import json
import os
import pickle
import random
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from protocol.node.node import Node
from protocol.run.admission import AdmissionKind, AdmissionSpec
from protocol.run.manifest import FORMAT, Manifest, SignedManifest, TensorSpec, sign_manifest
from protocol.run.model import ModelSpec
from protocol.run.task import Objective, TaskKind, TaskSpec
from sfnode import demo
from sfnode.children.child_program import Program
from sfnode.model_files.resolve import resolve_model
from sfnode.network.network_config import NetworkConfig
from sfnode.node.daemon import Daemon
from sfnode.node.daemon_config import DaemonConfig
from sfnode.reporter import Reporter
from sfnode.run.manifest_builder import AUTHORS_MAX, STALENESS, MethodOptions, build_manifest, method_of
from sfnode.storage.data_directory import STATUS_FILE, DataDirectory
from sfnode.storage.example_files import data_spec
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from sfnode.testnet.node_process import LEAVE_S, NodeEvent, NodeProcess
from sfnode.worker_protocol.training_config import DeviceOptions, TrainingConfig
from tests.support.fork_server import start, start_child
from tests.support.manifests import OWNER
from tests.support.patience import Patience, wait_for_end

MODEL = "embedded:tiny-opt"
DATA = "embedded:reviews"


def demo_run(
    *, steps: int, batch_rows: int = 8, name: str = "test", admission: str = "open", model: str = MODEL
) -> SignedManifest:
    """A signed run that trains the embedded model, or a copy of it."""
    data, sha256 = data_spec(DATA, is_private=False)
    task = TaskSpec(
        kind=TaskKind.CLASSIFICATION,
        completion="",
        objective=Objective.LOSS,
        template=demo.TEMPLATE,
        label_words=demo.LABEL_WORDS,
        data=data,
        data_sha256=sha256,
        max_tokens=48,
        batch_rows=batch_rows,
    )
    described, tensors = _described(model, task)
    method, schedule = method_of(MethodOptions(rank=8, directions=4))
    manifest = Manifest(
        format=FORMAT,
        name=name,
        owner=OWNER.author.hex(),
        model=described,
        tensors=tensors,
        task=task,
        method=method,
        schedule=schedule,
        steps=steps,
        admission=AdmissionSpec(kind=AdmissionKind(admission), pow_bits=0),
        staleness=STALENESS,
        authors_max=AUTHORS_MAX,
    )
    return sign_manifest(build_manifest(manifest), OWNER)


@functools.cache
def _described(model: str, task: TaskSpec) -> tuple[ModelSpec, tuple[TensorSpec, ...]]:
    """The model and what of it is trained; from a process of its own where to import torch would take seconds."""
    if "torch" in sys.modules:
        from sfnode.training.described_model import describe_run

        found = describe_run(resolve_model(model), "linear", task, DATA)
        return found.spec, found.tensors
    given = pickle.dumps((model, task, DATA)).hex()
    process = start_child(Program(module="tests.support.describe_model", arguments=(given,)), stderr=2)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        described: tuple[ModelSpec, tuple[TensorSpec, ...]] = pickle.loads(process.stdout.read())
    assert process.wait() == 0
    return described


def training(worker: Path | None) -> TrainingConfig:
    """Training of the embedded model on a shared worker (None: one of the node's own)."""
    return TrainingConfig(
        model=MODEL,
        data=demo.data_file("reviews"),
        devices=DeviceOptions(device="cpu"),
        worker_socket=worker,
        threads=1,
    )


def daemon_in_this_process(
    signed: SignedManifest, folder: Path, *, network: NetworkConfig, worker: Path | None, neighbours_min: int = 0
) -> Daemon:
    """A whole node, to be run in a nursery; silent."""
    config = DaemonConfig(
        signed=signed,
        data_dir=DataDirectory(folder),
        identity_seed=KeyFile(folder / IDENTITY_FILE).made_seed(),
        network=network,
        training=training(worker),
        neighbours_min=neighbours_min,
    )
    return Daemon(config, Reporter(is_json=True, stream=io.StringIO()))


def node_of(daemon: Daemon) -> Node:
    """The core of a daemon that runs."""
    assert daemon.running is not None
    return daemon.running.node


def free_port() -> int:
    """A TCP port on loopback that is free and stays so: below those that the system gives to connections by itself."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def free_ports(count: int) -> list[int]:
    """That many of them, no two the same."""
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return sorted(ports)


@dataclass
class PlacedProcess(NodeProcess):
    """A node that a command may run somewhere else (``prefix``), or that another ``module`` of Python runs.

    All that it has said can be read again.
    """

    prefix: tuple[str, ...] = ()
    module: str = "sfnode"

    def _launch(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        program = Program(module=self.module, arguments=tuple(self.words), leave_s=LEAVE_S, prefix=self.prefix)
        return program.start(stdout=output, stderr=subprocess.STDOUT, is_own_session=False)

    def events(self) -> Sequence[NodeEvent]:
        """All events since the last start."""
        read_bytes, self._read_bytes = self._read_bytes, 0
        try:
            return self.new_events()
        finally:
            self._read_bytes = read_bytes


class JoinProcess(PlacedProcess):
    """A node under test. Runs of tests are equal to the bit: without --no-mdns two at once would find each other."""

    @property
    def words(self) -> list[str]:
        """Without the local network."""
        return [*super().words, "--no-mdns"]

    def _launch(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        if self.prefix or self.module != "sfnode":
            return super()._launch(output)
        with open(os.devnull, "rb") as nothing:
            log = output.fileno()
            return start(self.words, stdin=nothing.fileno(), stdout=log, stderr=log)

    def stop(self, limit_s: float = 5.0) -> int:
        """SIGTERM; its exit code. subprocess.TimeoutExpired when it takes longer than ``limit_s`` of `Patience`."""
        self.terminate()
        assert self.process is not None
        code = wait_for_end(self.process, limit_s)
        self._let_go()
        return code

    def status(self) -> dict[str, Any]:
        """The last status file; empty before the first."""
        try:
            status: dict[str, Any] = json.loads((self.directory / STATUS_FILE).read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return status

    def events(self) -> list[dict[str, Any]]:
        """All that it has said in its present life."""
        return [dict(event) for event in super().events()]

    def wait_for_event(self, name: str, limit_s: float = 60.0) -> dict[str, Any]:
        """The first event of that name in the present life; AssertionError after ``limit_s`` of `Patience`."""
        assert self.process is not None
        patience = Patience(limit_s)
        while not patience.is_over():
            for event in self.events():
                if event["event"] == name:
                    return event
            assert self.process.poll() is None, self.logs[-1].read_text()
            time.sleep(0.1)
        raise AssertionError(f"no {name!r} within {limit_s} s:\n{self.logs[-1].read_text()[-2_000:]}")


def run_sfnode(*arguments: str, limit_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; subprocess.TimeoutExpired when that takes too long."""
    with open(os.devnull, "rb") as nothing, TemporaryFile() as output, TemporaryFile() as errors:
        process = start(list(arguments), stdin=nothing.fileno(), stdout=output.fileno(), stderr=errors.fileno())
        try:
            code = wait_for_end(process, limit_s)
        finally:
            process.kill()
        told = []
        for file in (output, errors):
            file.seek(0)
            told.append(file.read().decode())
    return subprocess.CompletedProcess(["sfnode", *arguments], code, *told)


def log_verify(directory: Path) -> dict[str, Any]:
    """``sfnode log verify`` as JSON."""
    result = run_sfnode("log", "verify", str(directory), "--json")
    verified: dict[str, Any] = json.loads(result.stdout)
    return verified


def write_run(signed: SignedManifest, path: Path) -> Manifest:
    """The run file on disk."""
    path.write_bytes(signed.encode())
    return signed.manifest
