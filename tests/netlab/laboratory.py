"""One laboratory: machines, the sfnode processes on them, and the worker that they share. All of it goes at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import mock

from benchmarks.graphs import Edges
from benchmarks.sample_runs import OWNER, Shape, manifest_of, tiny_tensors
from protocol.run.manifest import Manifest, SignedManifest, sign_manifest
from sfnode.network.policy.addresses import peer_of_author
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from tests import REPOSITORY
from tests.netlab.namespaces import Cable, Namespace, Wiring
from tests.support.daemons import JoinProcess, demo_run

PORT = 4_001
_STEPS = 1_000_000  # no run in here comes to its end
_STEPS_EMBEDDED = 10_000
_PACE_MS = 200
_CLOCK_HZ = os.sysconf("SC_CLK_TCK")


@dataclass
class NetNode(JoinProcess):
    """A node on a machine of the laboratory. ``is_honest``: the invariants are asked of it."""

    machine: Namespace = field(kw_only=True)
    is_training: bool = field(kw_only=True)
    is_honest: bool = field(default=True, kw_only=True)
    cpu_s_before: float = 0.0  # of its earlier lives

    @property
    def name(self) -> str:
        """The name of its machine."""
        return self.directory.name

    @property
    def author(self) -> bytes:
        """Its public key."""
        KeyFile(self.directory / IDENTITY_FILE).made_seed()
        return KeyFile(self.directory / IDENTITY_FILE).signer().author

    @property
    def peer(self) -> str:
        """Its peer id."""
        return str(peer_of_author(self.author))

    @property
    def is_up(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and self.process.poll() is None

    def fresh_status(self) -> dict[str, Any]:
        """The last status of its present life; empty before the first."""
        status = self.status()
        return status if self.process is not None and status.get("pid") == self.process.pid else {}

    def kill(self) -> None:
        """SIGKILL; what it has used so far is remembered."""
        self.cpu_s_before += self.cpu_s_now()
        super().kill()

    def cpu_s_now(self) -> float:
        """CPU seconds of its present life."""
        if self.process is None or self.process.poll() is not None:
            return 0.0
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _CLOCK_HZ

    def rss_mib(self, *, peak: bool = False) -> float:
        """Resident memory now, or the most of its present life."""
        assert self.process is not None
        wanted = "VmHWM:" if peak else "VmRSS:"
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(wanted)) / 1_024

    def descriptors(self) -> int:
        """Open files and sockets."""
        assert self.process is not None
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class Laboratory:
    """Machines and nodes of one scenario. Use it as a context: nothing is left of it afterwards, whatever happens."""

    def __init__(self, *, pace_ms: int = _PACE_MS, is_embedded: bool = False) -> None:
        """``is_embedded``: nodes train the embedded model on a real worker, as fast as that goes."""
        self.nodes: list[NetNode] = []
        self.figures: dict[str, object] = {}
        self._pace_ms = pace_ms
        self._programs: list[subprocess.Popen[str]] = []
        self._is_embedded = is_embedded
        self._signed = demo_run(steps=_STEPS_EMBEDDED) if is_embedded else _small_run()
        self.manifest: Manifest = self._signed.manifest

    def __enter__(self) -> Laboratory:
        self._temporary = tempfile.TemporaryDirectory(prefix="netlab-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        self.wiring = Wiring()
        self.run_file = self.folder / "netlab.run"
        self.run_file.write_bytes(self._signed.encode())
        self._path = mock.patch.dict(os.environ, PYTHONPATH=str(REPOSITORY))
        self._path.start()
        self._worker = self._start_worker()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for node in self.nodes:
            if node.is_up:
                node.kill()
        self.stop_programs()
        _end(self._worker)
        self._path.stop()
        self.wiring.remove()
        self._temporary.cleanup()

    # --- machines -----------------------------------------------------------------------------------------

    def graph(self, edges: Edges, count: int, *, relays: Iterable[int] = ()) -> dict[tuple[int, int], Cable]:
        """``count`` nodes that have the edges for neighbours and no others; not started. Returns the cables."""
        machines = [self.wiring.namespace(f"n{index}") for index in range(count)]
        cables = {(one, other): self.wiring.join(machines[one], machines[other]) for one, other in edges}
        passive = frozenset(relays)
        for index in range(count):
            node = self.node(machines[index], relay=index in passive, fixed=True)
            for (low, high), cable in cables.items():
                if high == index:
                    node.arguments += ["--bootstrap", address(self.nodes[low], cable.one.address)]
        return cables

    # --- nodes --------------------------------------------------------------------------------------------

    def node(
        self, machine: Namespace, bootstrap: Sequence[str] = (), *, relay: bool = False, fixed: bool = False
    ) -> NetNode:
        """A node that is not started yet; it listens on PORT of all addresses of its machine."""
        arguments = ["--run", str(self.run_file), "--listen", f"/ip4/0.0.0.0/tcp/{PORT}"]
        if relay:
            arguments.append("--relay")
        else:
            arguments += ["--worker-socket", str(self.folder / "worker.sock")]
            arguments += [] if self._is_embedded else ["--model", "local:none", "--data", "embedded:reviews"]
        if fixed:
            arguments.append("--neighbours-fixed")
        for target in bootstrap:
            arguments += ["--bootstrap", target]
        node = NetNode(
            directory=self.folder / machine.name,
            arguments=arguments,
            prefix=machine.prefix,
            machine=machine,
            is_training=not relay,
        )
        self.nodes.append(node)
        return node

    def run(self, machine: Namespace, *command: str) -> subprocess.Popen[str]:
        """Another program of ours on a machine; it takes orders on its standard input and dies with the laboratory."""
        process = subprocess.Popen(
            [*machine.prefix, sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._programs.append(process)
        return process

    def stop_programs(self) -> None:
        """End all that `run` started."""
        while self._programs:
            _end(self._programs.pop())

    # --- the worker that all training nodes share ----------------------------------------------------------

    def pause(self) -> None:
        """No node gets an estimate from now on: the set of updates comes to rest."""
        self._order("pause")

    def resume(self) -> None:
        """Estimates go on."""
        self._order("resume")

    def _start_worker(self) -> subprocess.Popen[str]:
        socket, scalars = self.folder / "worker.sock", self.manifest.method.scalars
        command = ["-m", "tests.netlab.worker", "--scalars", str(scalars), "--pace-ms", str(self._pace_ms)]
        if self._is_embedded:
            command = ["-m", "sfnode.training", "--threads", "1"]
        worker = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", sys.executable, *command, "--socket", str(socket)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        _expect(worker, "ready")
        return worker

    def _order(self, order: str) -> None:
        assert self._worker.stdin is not None
        self._worker.stdin.write(order + "\n")
        self._worker.stdin.flush()
        _expect(self._worker, order)


def _small_run() -> SignedManifest:
    return sign_manifest(manifest_of(Shape(authors=1_024, steps=_STEPS), tiny_tensors()), OWNER)


def address(node: NetNode, host: str) -> str:
    """Where to dial a node that has the IP address ``host``."""
    return f"/ip4/{host}/tcp/{PORT}/p2p/{node.peer}"


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _expect(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    said = process.stdout.readline().rstrip("\n")
    assert said == line, f"{process.args!r} said {said!r}, not {line!r}"
