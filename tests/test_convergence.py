"""The promise of the project: the model is a function of a set of messages, however they travelled."""

from __future__ import annotations

import random
from typing import Any

import pytest

from protocol.crypto.keys import Signer
from protocol.ledger.envelope import EnvelopeCodec
from protocol.state.replica import Replica
from protocol.wire import PeerId
from tests.support.cluster import Cluster
from tests.support.manifests import small_manifest

NORMALISED = {"core": "rademacher", "scalar": "raw", "directions": 4}


def ring(cluster: Cluster, count: int) -> list[str]:
    names = [f"node{index}" for index in range(count)]
    for name in names:
        cluster.add(name)
    for index, name in enumerate(names):
        cluster.link(name, names[(index + 1) % count])
    return names


@pytest.mark.parametrize("method", [{}, NORMALISED, {"local_steps": 2}], ids=["canonical", "rademacher", "local-steps"])
def test_live_node__compared_with_a_node_that_only_replays__has_equal_bits(method: dict[str, Any]) -> None:
    manifest = small_manifest(**method)
    cluster = Cluster(manifest, seed=1)
    ring(cluster, 4)
    cluster.run_until_agreement(120_000)
    live = cluster.node("node0")
    assert live.replica.ledger.updates == 4 * 40 // manifest.method.local_steps

    records = list(cluster.hosts[PeerId("node2")].disk.records)
    random.Random(7).shuffle(records)
    replay = Replica(manifest)
    for record in records:
        replay.add(record)

    assert cluster.digests() == {replay.state_digest()}
    assert replay.replayed_digest() == replay.state_digest()
    for epoch in replay.coefficients().epochs():
        assert (live.replica.coefficients().flat(epoch) == replay.coefficients().flat(epoch)).all()


@pytest.mark.parametrize("seed", range(6))
def test_network__with_loss_crash_late_joiner_and_equivocator__agrees(seed: int) -> None:
    manifest = small_manifest()
    cluster = Cluster(manifest, seed=seed, loss=0.05)
    ring(cluster, 5)
    cluster.run(2_500)
    crashed = cluster.hosts[PeerId("node1")]
    cluster.crash(crashed)
    cheat = Signer(b"cheat".ljust(32, b"."))
    for version, (source, target) in enumerate([("node2", "node3"), ("node3", "node4"), ("node4", "node0")]):
        cluster.push(source, target, EnvelopeCodec(manifest).seal(cheat, 3, (version + 1,)).record)
    cluster.run(2_000)
    late = cluster.add("late", expects_peers=True)
    cluster.link("late", "node3")
    cluster.boot(crashed, expects_peers=True)
    cluster.link("node1", "node0")
    cluster.link("node1", "node2")
    cluster.run_until_agreement(300_000)

    assert len(cluster.digests()) == 1
    assert late.node is not None and late.node.own_updates > 0
    assert late.node.replica.ledger.void_slots == 1
    for host in cluster.hosts.values():
        assert not host.dropped and host.halted is None
        assert all(len(versions) == 1 for versions in host.signed.values())
