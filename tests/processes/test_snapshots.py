"""Real nodes: a joiner on a slow line trains on a snapshot before its replay is through; and one that was lied to."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
import trio

from protocol.run.manifest import sign_manifest
from protocol.state.replica import Replica
from protocol.state.snapshot import AttestationCodec, Snapshot
from protocol.state.snapshot_proof import take_snapshot
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy.addresses import parse_bootstrap, parse_listen, peer_of_author
from sfnode.node.daemon import Daemon
from sfnode.node.daemon_config import DaemonConfig
from sfnode.reporter import Reporter
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from sfnode.storage.record_store import Store
from sfnode.worker_protocol.training_config import TrainingConfig
from tests.netlab.proxy import Proxy
from tests.netlab.worker import PacedWorker
from tests.support import network_nodes
from tests.support.daemons import JoinProcess, free_port, log_verify, node_of
from tests.support.fake_worker import listening
from tests.support.ledgers import admit, signer
from tests.support.manifests import OWNER
from tests.support.running_nodes import Joins
from tests.support.snapshot_runs import AUTHORS, JOINER, STEP, records, run_of

RUN = run_of(local_steps=2)
SIGNED = sign_manifest(RUN, OWNER)

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


def seed_of(number: int) -> bytes:
    """The secret of ledgers.signer."""
    return b"author" + number.to_bytes(26, "big")


def veteran(folder: Path, number: int, worker: Path, bootstrap: tuple[str, ...], port: int) -> Daemon:
    """A node in this process whose disk holds everything."""
    store = Store(DataDirectory(folder), SIGNED)
    store.add_statements([admit(RUN, each) for each in (*AUTHORS, JOINER)])
    store.add(records(RUN), is_durable=True)
    store.close()
    bootstraps, listen = tuple(map(parse_bootstrap, bootstrap)), parse_listen(f"/ip4/127.0.0.1/tcp/{port}")
    network = NetworkConfig(listen=(listen,), bootstrap=bootstraps, neighbours_fixed=True, local_discovery=False)
    training = TrainingConfig(model="none", data=None, worker_socket=worker)
    config = DaemonConfig(
        signed=SIGNED, data_dir=DataDirectory(folder), identity_seed=seed_of(number), network=network, training=training
    )
    return Daemon(config, Reporter(is_json=True, stream=io.StringIO()))


@dataclass
class Old:
    """A network that has left a step behind, and the slow line to it."""

    proxy: Proxy
    address: str
    nodes: list[Daemon] = field(default_factory=list)

    async def agree(self) -> None:
        """All have attested the snapshot, and the first knows of it."""
        table = node_of(self.nodes[0]).snapshots.attestations
        await until(lambda: bool(table.agreed(len(AUTHORS))))


@asynccontextmanager
async def old_network(folder: Path) -> AsyncIterator[Old]:
    """Three authors at work; joiners reach them through a line of 20 kB/s."""
    port, near = free_port(), free_port()
    peer = peer_of_author(signer(AUTHORS[0]).author)
    old = Old(proxy=Proxy(target=("127.0.0.1", port)), address=f"/ip4/127.0.0.1/tcp/{near}/p2p/{peer}")
    worker = PacedWorker(path=folder / "worker.sock", scalars=RUN.method.scalars, pace_s=0.5)
    worker.running.set()
    async with listening(worker), trio.open_nursery() as nursery:
        for number in AUTHORS:
            bootstrap = (f"/ip4/127.0.0.1/tcp/{port}/p2p/{peer}",) if old.nodes else ()
            own_port = free_port() if old.nodes else port
            node = veteran(folder / f"old{number}", number, worker.path, bootstrap, own_port)
            await nursery.start(node.run)
            old.nodes.append(node)
        await nursery.start(partial(trio.serve_tcp, old.proxy.serve, near, host="127.0.0.1"))
        yield old
        nursery.cancel_scope.cancel()


def joining(joins: Joins, folder: Path, old: Old, *arguments: object) -> JoinProcess:
    """A node with a key that the owner has admitted, and nothing else."""
    KeyFile(folder / "joiner" / IDENTITY_FILE).store(seed_of(JOINER))
    run_file = folder / "test.run"
    run_file.write_bytes(SIGNED.encode())
    given = ("--run", run_file, "--model", folder, "--data", "embedded:reviews")
    return joins(
        "joiner",
        *given,
        "--worker-socket",
        folder / "worker.sock",
        "--bootstrap",
        old.address,
        "--neighbours-fixed",
        *arguments,
    )


async def until(condition: Callable[[], bool]) -> None:
    """Fails when it takes a minute."""
    await network_nodes.until(condition, within_s=60.0)


async def in_thread(act: Callable[[], object]) -> None:
    await trio.to_thread.run_sync(act)


@asynccontextmanager
async def on_a_snapshot(old: Old, folder: Path) -> AsyncIterator[JoinProcess]:
    """Somebody who joins on a slow line, as soon as it uses a snapshot."""
    await old.agree()
    old.proxy.set_fault("throttle")
    with Joins(folder) as joins:
        joiner = joining(joins, folder, old, "--snapshot", "always")
        await in_thread(lambda: joiner.wait_for_event("snapshot_used"))
        yield joiner


async def test_joiner__on_a_slow_line__contributes_before_its_replay_is_through_and_then_proves(tmp_path: Path) -> None:
    async with old_network(tmp_path) as old, on_a_snapshot(old, tmp_path) as joiner:
        mine = signer(JOINER).author
        await until(lambda: node_of(old.nodes[1]).replica.ledger.highest_step(mine) >= 0)
        early = joiner.status()
        assert early["catching_up"] > early["updates"], early  # not live yet
        old.proxy.set_fault("none")
        await in_thread(lambda: joiner.wait_for_event("snapshot_proved"))
        assert joiner.stop() == 0
    verified = log_verify(tmp_path / "joiner")
    assert verified["ok"] and verified["void_slots"] == 0 and verified["updates"] > len(records(RUN))


async def test_joiner__authors_lie_in_concert__stops_loudly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lie(replica: Replica, step: int) -> Snapshot:
        true = take_snapshot(replica, step)
        return replace(true, epochs={epoch: flat + 1 for epoch, flat in true.epochs.items()})

    monkeypatch.setattr("protocol.state.snapshot_proof.take_snapshot", lie)
    async with old_network(tmp_path) as old, on_a_snapshot(old, tmp_path) as joiner:
        old.proxy.set_fault("none")
        assert joiner.process is not None
        assert await trio.to_thread.run_sync(joiner.process.wait, 60.0) == 1
    text = joiner.logs[-1].read_text()
    assert f"the snapshot of the steps before {STEP} is false" in text and "halt.json" in text
    evidence = json.loads((tmp_path / "joiner" / "halt.json").read_text())
    assert all(signer(number).author.hex()[:16] in evidence["detail"] for number in AUTHORS)
    codec = AttestationCodec(RUN)
    for data in map(bytes.fromhex, evidence["attestations"]):
        codec.check_signed(codec.decode_untrusted(data))
    assert (tmp_path / "joiner" / "halt-snapshot.bin").exists()
