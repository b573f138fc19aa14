"""Nodes for tests: in this process, and as real processes; a small run of the embedded model; free ports."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.run.manifest import Manifest, SignedManifest, sign_manifest
from protocol.run.task import Objective, TaskKind, TaskSpec
from sfnode import demo
from sfnode.network.events import NetworkConfig
from sfnode.node.daemon import Daemon, DaemonConfig
from sfnode.reporter import Reporter
from sfnode.run.builder import MethodChoice, build_manifest, method_plain
from sfnode.run.data_files import data_spec
from sfnode.storage.identity import FILE_NAME, load_or_create_seed
from sfnode.storage.store import STATUS_FILE
from sfnode.worker.training_config import TrainingConfig
from tests.support.manifests import OWNER

MODEL = "embedded:tiny-opt"
DATA = "embedded:reviews"


def demo_run(*, steps: int, batch_rows: int = 8, name: str = "test", admission: str = "open") -> SignedManifest:
    """A signed run that trains the embedded model."""
    from sfnode.training.describe import describe_run

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
    described = describe_run(MODEL, "linear", task, DATA)
    method, schedule = method_plain(MethodChoice(rank=8, directions=4))
    settings = {"method": method, "schedule": schedule, "steps": steps, "admission": {"kind": admission}}
    manifest = build_manifest(
        name=name, owner=OWNER.author, model=described.spec, tensors=described.tensors, task=task, settings=settings
    )
    return sign_manifest(manifest, OWNER)


def training(worker: Path | None) -> TrainingConfig:
    """Training of the embedded model on a shared worker (None: one of the node's own)."""
    return TrainingConfig(
        model=MODEL, data=str(demo.data_file("reviews")), device="cpu", worker_socket=worker, threads=1
    )


def daemon_in_this_process(
    signed: SignedManifest, folder: Path, *, network: NetworkConfig, worker: Path | None, neighbours_min: int = 0
) -> Daemon:
    """A whole node, to be run in a nursery; silent."""
    config = DaemonConfig(
        signed=signed,
        data_dir=folder,
        identity_seed=load_or_create_seed(folder / FILE_NAME),
        network=network,
        training=training(worker),
        neighbours_min=neighbours_min,
    )
    return Daemon(config, Reporter(is_json=True, stream=io.StringIO()))


def free_port() -> int:
    """A TCP port on loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class JoinProcess:
    """One ``sfnode join`` as a real process.

    Attributes:
        prefix: a command that runs it somewhere else.
        is_discovering: it looks for others on the local network. Runs of tests are equal to the bit: two that go on at
            once would find each other.
    """

    directory: Path
    arguments: list[str]
    prefix: tuple[str, ...] = ()
    module: str = "sfnode"
    is_discovering: bool = False
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    logs: list[Path] = field(default_factory=list)

    def start(self, log: Path | None = None) -> None:
        """Start it (again) on its directory; ``log``: where its output goes, else beside the directory."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.logs.append(log or self.directory.with_name(f"{self.directory.name}.{self.starts}.log"))
        join = [sys.executable, "-m", self.module, "join", "--data-dir", str(self.directory), "--json"]
        discovery = [] if self.is_discovering else ["--no-mdns"]
        with self.logs[-1].open("wb") as output:
            command = [*self.prefix, *join, *discovery, *self.arguments]
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        self.starts += 1

    def kill(self) -> None:
        """SIGKILL: no goodbye, no flush."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, limit_s: float = 5.0) -> int:
        """SIGTERM; its exit code. Fails when it takes longer than ``limit_s``."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(limit_s)

    def status(self) -> dict[str, Any]:
        """The last status file; empty before the first."""
        try:
            status: dict[str, Any] = json.loads((self.directory / STATUS_FILE).read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return status

    def events(self) -> list[dict[str, Any]]:
        """JSON lines of the present life."""
        lines = self.logs[-1].read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def wait_for_event(self, name: str, limit_s: float = 60.0) -> dict[str, Any]:
        """The first event of that name in the present life."""
        assert self.process is not None
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            for event in self.events():
                if event["event"] == name:
                    return event
            assert self.process.poll() is None, self.logs[-1].read_text()
            time.sleep(0.1)
        raise AssertionError(f"no {name!r} within {limit_s} s:\n{self.logs[-1].read_text()[-2_000:]}")


def run_sfnode(*arguments: str, limit_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, "-m", "sfnode", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)


def log_verify(directory: Path) -> dict[str, Any]:
    """``sfnode log verify`` as JSON."""
    result = run_sfnode("log", "verify", str(directory), "--json")
    verified: dict[str, Any] = json.loads(result.stdout)
    return verified


def write_run(signed: SignedManifest, path: Path) -> Manifest:
    """The run file on disk."""
    path.write_bytes(signed.encode())
    return signed.manifest
