"""A live run for attacks: training nodes as processes on loopback, with one worker that answers at a set pace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.sample_runs import OWNER, Shape, manifest_of, tiny_tensors
from protocol.run import Manifest, sign_manifest
from tests.attacks.visitor import pid_of
from tests.support.daemons import JoinProcess, free_ports
from tests.support.patience import Stopwatch, waits_of
from tests.support.running_nodes import address_in, running, wait_until
from tests.support.worker_process import paced_worker

_STEPS = 100_000  # no attack sees the end


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """The nodes, all neighbours of the first, where each can be dialled, and the process id of their worker."""

    manifest: Manifest
    nodes: tuple[JoinProcess, ...]
    addresses: tuple[str, ...]
    worker: int

    def steps_per_s(self, seconds: float) -> float:
        """Return how many steps a node makes in a second, on average over all nodes and the next ``seconds``.

        A second in which the node or the worker stands in the queue for a processor counts less: other work on the
        machine slows nodes down, and an attack must not be taken for it, nor it for an attack.
        """
        steps = [int(node.status()["own_updates"]) for node in self.nodes]
        stopwatches = [Stopwatch(partial(waits_of, (pid_of(node), self.worker))) for node in self.nodes]
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(1.0, left_s))
            spent_s = [stopwatch.seconds() for stopwatch in stopwatches]
        made = [int(node.status()["own_updates"]) - before for node, before in zip(self.nodes, steps, strict=True)]
        return sum(count / each_s for count, each_s in zip(made, spent_s, strict=True)) / len(self.nodes)


@contextmanager
def live_run(folder: Path, *, count: int = 3, pace_ms: int = 100) -> Iterator[LiveRun]:
    """``count`` nodes that train; a step takes each of them ``pace_ms``."""
    manifest = manifest_of(Shape(authors=count, steps=_STEPS), tiny_tensors())
    run_file, socket = folder / "attacked.run", folder / "worker.sock"
    run_file.write_bytes(sign_manifest(manifest, OWNER).encode())
    ports = free_ports(count)
    addresses = tuple(address_in(folder / f"node{number}", port) for number, port in enumerate(ports))
    nodes = [
        JoinProcess(
            directory=folder / f"node{number}",
            arguments=[
                *("--run", str(run_file), "--worker-socket", str(socket), "--neighbours-fixed"),
                *("--model", "local:none", "--data", "embedded:reviews"),  # the worker reads none of them
                *("--listen", f"/ip4/127.0.0.1/tcp/{port}"),
                *(("--bootstrap", addresses[0]) if number else ()),
            ],
        )
        for number, port in enumerate(ports)
    ]
    with paced_worker(socket, manifest, pace_ms) as worker, running(nodes):
        wait_until(lambda: all(node.status().get("own_updates", 0) > 5 for node in nodes), "all nodes train")
        yield LiveRun(manifest=manifest, nodes=tuple(nodes), addresses=addresses, worker=worker)
