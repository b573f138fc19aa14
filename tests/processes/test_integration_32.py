"""Many full nodes on this machine: own host, identity, data directory and worker session each; sparse graph and ring.

All but one run in this process; the one that is killed hard is a process of its own. Two join when half of the steps
are done.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from protocol.run.manifest import SignedManifest
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy.addresses import Address, parse_bootstrap, peer_of_author
from sfnode.node.daemon import Daemon
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from sfnode.worker.supervisor import worker_process
from tests.support.daemons import (
    JoinProcess,
    daemon_in_this_process,
    demo_run,
    free_port,
    log_verify,
    node_of,
    write_run,
)
from tests.support.network_nodes import LOOPBACK
from tests.support.patience import Patience

LATE = 2
KILLED = 5  # number of the node that is a process of its own
LIMIT_S = 90  # without a new update anywhere

pytestmark = [pytest.mark.process(is_long=True), pytest.mark.timeout(300)]


def ring_edges(count: int) -> list[tuple[int, int]]:
    """Each node and the one before it; the last closes the ring."""
    return [(index, index - 1) for index in range(1, count)] + [(count - 1, 0)]


def sparse_edges(count: int) -> list[tuple[int, int]]:
    """A ring with as many random chords: degree about 4, connected."""
    chance = random.Random(4)
    edges = {(max(pair), min(pair)) for pair in ring_edges(count)}
    while len(edges) < 2 * count:
        low, high = sorted(chance.sample(range(count), 2))
        edges.add((high, low))
    return sorted(edges)


@dataclass
class ManyNodes:
    """The nodes of one test and how they are wired: every edge is dialled by its higher end."""

    signed: SignedManifest
    count: int
    folder: Path
    edges: list[tuple[int, int]]
    worker: Path
    daemons: dict[int, Daemon] = field(default_factory=dict)
    addresses: dict[int, Address] = field(default_factory=dict)
    killed: JoinProcess | None = None

    def targets(self, index: int) -> tuple[Address, ...]:
        return tuple(self.addresses[low] for high, low in self.edges if high == index)

    async def start(self, nursery: trio.Nursery, index: int) -> None:
        if index == KILLED:
            self.start_process(index)
            return
        config = NetworkConfig(listen=(LOOPBACK,), bootstrap=self.targets(index), neighbours_fixed=True)
        folder = self.folder / f"node{index}"
        daemon = daemon_in_this_process(self.signed, folder, network=config, worker=self.worker, neighbours_min=1)
        (self.addresses[index],) = await nursery.start(daemon.run)
        self.daemons[index] = daemon

    def start_process(self, index: int) -> None:
        folder = self.folder / f"node{index}"
        listen = f"/ip4/127.0.0.1/tcp/{free_port()}"
        KeyFile(folder / IDENTITY_FILE).made_seed()
        peer = peer_of_author(KeyFile(folder / IDENTITY_FILE).signer().author)
        self.addresses[index] = parse_bootstrap(f"{listen}/p2p/{peer}")
        arguments = ["--run", str(self.folder / "test.run"), "--listen", listen, "--neighbours-fixed"]
        arguments += ["--worker-socket", str(self.worker), "--neighbours-min", "1"]
        for target in self.targets(index):
            arguments += ["--bootstrap", str(target)]
        self.killed = JoinProcess(directory=folder, arguments=arguments)
        self.killed.start()

    def steps(self) -> list[int]:
        return [node_of(daemon).clock.next_step for daemon in self.daemons.values()]

    def updates(self) -> list[int]:
        """How many each node holds: more and more of them until the end of the run."""
        return [node_of(daemon).replica.ledger.updates for daemon in self.daemons.values()]

    def is_agreed(self) -> bool:
        """All are finished and hold the same ledger and state."""
        assert self.killed is not None
        status = self.killed.status()
        nodes = [node_of(daemon) for daemon in self.daemons.values()]
        if not all(node.own_steps.is_finished for node in nodes) or not status.get("is_finished"):
            return False
        roots = {node.replica.ledger.root().hex() for node in nodes} | {status["ledger_root"]}
        return len(roots) == 1

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for ``condition``; fails with the state of every node when none gets on for LIMIT_S of `Patience`."""
        patience = Patience(LIMIT_S, progress=self.updates)
        while not condition():
            assert not patience.is_over(), "\n".join(self.describe())
            await trio.sleep(0.2)

    def describe(self) -> list[str]:
        nodes = {index: node_of(daemon) for index, daemon in self.daemons.items()}
        lines = [
            f"{index}: step {node.clock.next_step}, {node.replica.ledger.updates} updates, "
            f"{node.sync.peers} peers, live {node.sync.is_live}, estimating {node.own_steps.estimating}"
            for index, node in nodes.items()
        ]
        return [*lines, f"killed: {self.killed.status() if self.killed else None}"]

    def state_digests(self) -> list[str]:
        assert self.killed is not None
        digests = [node_of(daemon).replica.state_digest().hex() for daemon in self.daemons.values()]
        return [*digests, self.killed.status()["state_digest"]]


async def scenario(network: ManyNodes) -> list[str]:
    """Start all but two, which join at half-time, kill one hard and start it again; the state digests at the end."""
    steps = network.signed.manifest.steps
    async with trio.open_nursery() as nursery:
        for index in range(network.count - LATE):
            await network.start(nursery, index)
        await network.until(lambda: min(network.steps()) >= steps // 3)
        assert network.killed is not None
        await network.until(lambda: network.killed is not None and network.killed.status().get("own_updates", 0) > 0)
        network.killed.kill()
        await network.until(lambda: min(network.steps()) >= steps // 2)
        network.killed.start()
        for index in range(network.count - LATE, network.count):
            await network.start(nursery, index)
        await network.until(network.is_agreed)
        digests = network.state_digests()
        assert await trio.to_thread.run_sync(network.killed.stop) == 0
        nursery.cancel_scope.cancel()
    return digests


@pytest.mark.parametrize(
    ("edges", "nodes", "steps"),
    [
        pytest.param(sparse_edges, 32, 12, id="32, sparse"),
        pytest.param(sparse_edges, 32, 24, id="32, sparse, long", marks=pytest.mark.slow),
        pytest.param(ring_edges, 32, 24, id="32, ring, long", marks=pytest.mark.slow),
    ],
)
def test_32_nodes__with_late_joiners_and_a_hard_kill__end_with_equal_bits(
    edges: Callable[[int], list[tuple[int, int]]], nodes: int, steps: int, tmp_path: Path
) -> None:
    signed = demo_run(steps=steps)
    write_run(signed, tmp_path / "test.run")

    async def main() -> tuple[ManyNodes, list[str]]:
        async with worker_process(threads=1) as worker:
            network = ManyNodes(signed=signed, count=nodes, folder=tmp_path, edges=edges(nodes), worker=worker)
            return network, await scenario(network)

    network, digests = trio.run(main)
    replayed = log_verify(tmp_path / "node0")
    assert len(digests) == nodes
    assert set(digests) == {replayed["state_digest"]}
    assert replayed["ok"] and replayed["authors"] == nodes and replayed["void_slots"] == 0
    for late in range(nodes - LATE, nodes):
        assert node_of(network.daemons[late]).own_steps.updates > 0
