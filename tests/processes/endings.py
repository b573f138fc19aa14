"""Whether nodes that leave when the run is over hold the same bits, however unequal their speeds.

    python -m tests.processes.endings --networks 20
    python -m tests.processes.endings --networks 20 --testnet

Each network is of real `sfnode join` processes on loopback, with workers that answer after a set time: by turns paces
of 1 : 10, and one worker that needs 30 s for a step while the others need one. They stand in a chain and leave by
themselves (`--exit-when-finished`), or `sfnode testnet` runs them and stops them when all say that the run is over.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import trio

from benchmarks.measures import say
from benchmarks.sample_runs import OWNER, Shape, manifest_of, tiny_tensors
from protocol.run import Manifest, sign_manifest
from sfnode.testnet import LocalNetwork, LocalNetworkConfig
from sfnode.testnet.node_process import LocalNode
from sfnode.worker_protocol import TrainingConfig
from tests.netlab.tables import table
from tests.support.daemons import JoinProcess, free_ports
from tests.support.patience import Patience
from tests.support.running_nodes import address_in, running
from tests.support.worker_process import paced_worker

SLOW_STEP: Final = "one step of 30 s"
UNEQUAL: Final = "paces of 1 : 10"
_LIMIT_S: Final = 300.0
_POLL_S: Final = 0.1


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
    """How one network ended; ``digests``: what each node said at its end, with how many peers it was equal."""

    network: UnequalNetwork
    exit_codes: tuple[int | None, ...]
    digests: tuple[str, ...]
    equal_peers: tuple[int, ...]
    own_updates: tuple[int, ...]
    seconds: float

    @property
    def is_equal(self) -> bool:
        """Whether all ended with exit code 0, all had said what they held, and it was the same."""
        count = len(self.network.paces_ms)
        return self.exit_codes == (0,) * count and len(self.digests) >= count and len(set(self.digests)) == 1


def run_network(network: UnequalNetwork, folder: Path) -> Ended:
    """Start the network, and wait until all nodes have left."""
    manifest = manifest_of(Shape(authors=len(network.paces_ms), steps=network.steps), tiny_tensors())
    (folder / "test.run").write_bytes(sign_manifest(manifest, OWNER).encode())
    started = time.monotonic()
    nodes = _nodes(network, folder)
    with _workers(manifest, network, folder), running(nodes):
        patience = Patience(_LIMIT_S)
        while any(node.is_alive for node in nodes) and not patience.is_over():
            time.sleep(_POLL_S)
        codes = tuple(node.exit_code for node in nodes)
    said = [event for node in nodes for event in node.events() if event["event"] == "finished"]
    return Ended(
        network=network,
        exit_codes=codes,
        digests=tuple(event["state_digest"] for event in said),
        equal_peers=tuple(event["equal_peers"] for event in said),
        own_updates=tuple(int(node.status().get("own_updates", 0)) for node in nodes),
        seconds=time.monotonic() - started,
    )


class _UnequalTestnet(LocalNetwork):
    """What `sfnode testnet` runs, but each node is one under test, and has a worker of its own in place of a shared."""

    def __init__(self, config: LocalNetworkConfig, sockets: list[Path]) -> None:
        super().__init__(config, lambda _: None)
        self._of_nodes = sockets

    def _start(self, name: str) -> None:
        self._sockets = self._of_nodes
        process = JoinProcess(self._config.folder / name, self._arguments())
        process.start()
        self.nodes.append(LocalNode(name=name, process=process))


def run_testnet(network: UnequalNetwork, folder: Path) -> Ended:
    """As `run_network`, with the class behind `sfnode testnet`; the digests include that of its offline replay."""
    signed = sign_manifest(
        manifest_of(Shape(authors=len(network.paces_ms), steps=network.steps), tiny_tensors()), OWNER
    )
    data = folder / "data.jsonl"  # the worker reads no examples
    data.write_text('{"sentence": "a fine film", "label": 1}\n', encoding="utf-8")
    config = LocalNetworkConfig(
        folder=folder,
        signed=signed,
        nodes=len(network.paces_ms),
        late_nodes=0,
        workers=0,
        training=TrainingConfig(model="local:none", data=data),
        timeout_s=_LIMIT_S,
    )
    testnet = _UnequalTestnet(config, _sockets(network, folder))
    with _workers(signed.manifest, network, folder):
        result = trio.run(testnet.run)
    return Ended(
        network=network,
        exit_codes=tuple(node.process.exit_code for node in testnet.nodes),
        digests=(*result.state_digests, result.replayed_digest),
        equal_peers=tuple(status.end.equal_peers for status in result.statuses),
        own_updates=tuple(status.node.own_updates for status in result.statuses),
        seconds=result.seconds,
    )


def _sockets(network: UnequalNetwork, folder: Path) -> list[Path]:
    return [folder / f"worker{number}.sock" for number in range(len(network.paces_ms))]


@contextmanager
def _workers(manifest: Manifest, network: UnequalNetwork, folder: Path) -> Iterator[None]:
    """A worker of its own for each node."""
    with ExitStack() as stack:
        for path, pace_ms in zip(_sockets(network, folder), network.paces_ms, strict=True):
            stack.enter_context(paced_worker(path, manifest, pace_ms))
        yield


def _nodes(network: UnequalNetwork, folder: Path) -> list[JoinProcess]:
    """A chain: each node knows the one before it, and exchanges no addresses."""
    sockets = _sockets(network, folder)
    ports = free_ports(len(sockets))
    nodes = []
    for number, (path, port) in enumerate(zip(sockets, ports, strict=True)):
        run_file = str(folder / "test.run")
        arguments = ["--run", run_file, "--worker-socket", str(path), "--exit-when-finished"]
        arguments += ["--model", "local:none", "--data", "embedded:reviews"]  # the worker reads none of them
        arguments += ["--listen", f"/ip4/127.0.0.1/tcp/{port}", "--neighbours-fixed", "--neighbours-min", "1"]
        if number:
            arguments += ["--bootstrap", address_in(folder / f"node{number - 1}", ports[number - 1])]
        nodes.append(JoinProcess(directory=folder / f"node{number}", arguments=arguments))
    return nodes


@click.command()
@click.option("--networks", "count", default=20, show_default=True, help="How many, of both kinds by turns.")
@click.option("--testnet", "is_testnet", is_flag=True, help="As `sfnode testnet` runs them.")
def main(count: int, is_testnet: bool) -> None:
    """Run networks to their end; exit code 1 when nodes of one have left with different models."""
    rows, is_all_equal = [], True
    for number in range(count):
        with tempfile.TemporaryDirectory() as folder:
            ended = (run_testnet if is_testnet else run_network)(NETWORKS[number % len(NETWORKS)], Path(folder))
        is_all_equal = is_all_equal and ended.is_equal
        updates, peers = (" ".join(map(str, each)) for each in (ended.own_updates, ended.equal_peers))
        verdict = "equal" if ended.is_equal else f"NOT EQUAL: {ended.exit_codes}, {ended.digests}"
        rows.append((ended.network.name, verdict, updates, peers, f"{ended.seconds:.0f}"))
        say(" ".join(rows[-1]))
    click.echo(table(("network", "at exit", "own updates", "said: equal with", "seconds"), rows))
    sys.exit(0 if is_all_equal else 1)


if __name__ == "__main__":
    main()
