"""Whether nodes that leave when the run is over hold the same bits, however unequal their speeds.

    python -m tests.processes.endings --networks 20

Each network is of real `sfnode join --exit-when-finished` processes on loopback, in a chain, with workers that answer
after a set time: by turns paces of 1 : 10, and one worker that needs 30 s for a step while the others need one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from benchmarks.measures import say
from benchmarks.sample_runs import OWNER, Shape, manifest_of, tiny_tensors
from protocol.run import Manifest, sign_manifest
from tests.netlab.tables import table
from tests.support.daemons import JoinProcess, free_ports
from tests.support.running_nodes import address_in, running

SLOW_STEP: Final = "one step of 30 s"
UNEQUAL: Final = "paces of 1 : 10"
_LIMIT_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnequalNetwork:
    """Steps of the run, and how long one takes each node, in milliseconds."""

    name: str
    steps: int
    paces_ms: tuple[int, ...]


NETWORKS: Final = (
    UnequalNetwork(name=UNEQUAL, steps=40, paces_ms=(200, 2_000, 200, 300)),
    UnequalNetwork(name=SLOW_STEP, steps=8, paces_ms=(1_000, 1_000, 1_200, 30_000)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How one network ended; ``digests``: what each node said when it left, with how many peers it was equal."""

    network: UnequalNetwork
    exit_codes: tuple[int | None, ...]
    digests: tuple[str, ...]
    equal_peers: tuple[int, ...]
    own_updates: tuple[int, ...]
    seconds: float

    @property
    def is_equal(self) -> bool:
        """Whether all left by themselves, all said so, and all held the same."""
        count = len(self.network.paces_ms)
        return self.exit_codes == (0,) * count and len(self.digests) == count and len(set(self.digests)) == 1


def run_network(network: UnequalNetwork, folder: Path) -> Ended:
    """Start the network, and wait until all nodes have left."""
    manifest = manifest_of(Shape(authors=len(network.paces_ms), steps=network.steps), tiny_tensors())
    (folder / "test.run").write_bytes(sign_manifest(manifest, OWNER).encode())
    started = time.monotonic()
    nodes = _nodes(network, folder)
    with _workers(manifest, network, folder), running(nodes):
        codes = tuple(_exit_code(node, started + _LIMIT_S) for node in nodes)
    said = [event for node in nodes for event in node.events() if event["event"] == "finished"]
    return Ended(
        network=network,
        exit_codes=codes,
        digests=tuple(event["state_digest"] for event in said),
        equal_peers=tuple(event["equal_peers"] for event in said),
        own_updates=tuple(int(node.status().get("own_updates", 0)) for node in nodes),
        seconds=time.monotonic() - started,
    )


def _exit_code(node: JoinProcess, deadline: float) -> int | None:
    assert node.process is not None
    try:
        return node.process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def _sockets(network: UnequalNetwork, folder: Path) -> list[Path]:
    return [folder / f"worker{number}.sock" for number in range(len(network.paces_ms))]


@contextmanager
def _workers(manifest: Manifest, network: UnequalNetwork, folder: Path) -> Iterator[None]:
    """A worker of its own for each node."""
    command = [sys.executable, "-m", "tests.netlab.worker", "--scalars", str(manifest.method.scalars)]
    workers = [
        subprocess.Popen(
            [*command, "--socket", str(path), "--pace-ms", str(pace_ms)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for path, pace_ms in zip(_sockets(network, folder), network.paces_ms, strict=True)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"ready\n"
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def _nodes(network: UnequalNetwork, folder: Path) -> list[JoinProcess]:
    """A chain: each node knows the one before it, and exchanges no addresses."""
    sockets = _sockets(network, folder)
    ports = free_ports(len(sockets))
    nodes = []
    for number, (path, port) in enumerate(zip(sockets, ports, strict=True)):
        run_file = str(folder / "test.run")
        arguments = ["--run", run_file, "--worker-socket", str(path), "--exit-when-finished"]
        arguments += ["--model", "local:none", "--data", run_file]  # any file: the worker reads no examples
        arguments += ["--listen", f"/ip4/127.0.0.1/tcp/{port}", "--neighbours-fixed", "--neighbours-min", "1"]
        if number:
            arguments += ["--bootstrap", address_in(folder / f"node{number - 1}", ports[number - 1])]
        nodes.append(JoinProcess(directory=folder / f"node{number}", arguments=arguments))
    return nodes


@click.command()
@click.option("--networks", "count", default=20, show_default=True, help="How many, of both kinds by turns.")
def main(count: int) -> None:
    """Run networks to their end; exit code 1 when nodes of one have left with different models."""
    rows, is_all_equal = [], True
    for number in range(count):
        with tempfile.TemporaryDirectory() as folder:
            ended = run_network(NETWORKS[number % len(NETWORKS)], Path(folder))
        is_all_equal = is_all_equal and ended.is_equal
        updates, peers = (" ".join(map(str, each)) for each in (ended.own_updates, ended.equal_peers))
        verdict = "equal" if ended.is_equal else f"NOT EQUAL: {ended.exit_codes}, {ended.digests}"
        rows.append((ended.network.name, verdict, updates, peers, f"{ended.seconds:.0f}"))
        say(" ".join(rows[-1]))
    click.echo(table(("network", "at exit", "own updates", "said: equal with", "seconds"), rows))
    sys.exit(0 if is_all_equal else 1)


if __name__ == "__main__":
    main()
