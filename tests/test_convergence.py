"""The promise of the project: the model is a function of a set of messages, however they travelled.

The machines are those of the simulation: its watch raises when one signs a slot twice, loses an own update, is cut off
by an honest neighbour, or halts.
"""

from __future__ import annotations

import random

import pytest

from protocol.crypto.keys import Signer
from protocol.ledger.envelope import EnvelopeCodec
from tests.simulation.scripted import scripted_network


@pytest.mark.parametrize("run", ["canonical", "rademacher", "rounds", "dense of 4 bits", "dense of 2 bits"])
def test_live_node__compared_with_a_node_that_only_replays__has_equal_bits(run: str) -> None:
    with scripted_network(run=run) as network:
        network.add_ring(4)
        network.run_until_agreement(120_000)
        live, manifest = network.node("node0"), network.manifest
        rounds = manifest.steps // manifest.method.local_steps
        # Nobody waits for the slower half: who has fallen a round behind skips one.
        assert all(network.node(name).own_steps.updates > 0.7 * rounds for name in network.hosts)

        replay = network.replayed("node2", random.Random(7))
        assert network.digests() == {replay.state_digest()}
        assert replay.replayed_digest() == replay.state_digest()
        for epoch in replay.coefficients().epochs():
            assert (live.replica.coefficients().flat(epoch) == replay.coefficients().flat(epoch)).all()


def test_network__of_a_fast_author_and_a_slow_newcomer__leaves_rounds_to_both() -> None:
    """A fault once: the fast one was at the last step before the other had measured its first."""
    with scripted_network() as network:
        network.add("fast", estimate_ms=50)
        network.run(500)
        network.add("slow", "fast", expects_peers=True, estimate_ms=2_000)
        network.run_until_agreement(60_000)
        assert network.node("slow").own_steps.updates >= 6
        assert network.node("fast").own_steps.updates >= 35


@pytest.mark.parametrize("seed", range(6))
def test_network__with_loss_crash_late_joiner_and_equivocator__agrees(seed: int) -> None:
    with scripted_network(seed=seed, loss=0.05) as network:
        network.add_ring(5)
        network.run(2_500)
        network.hosts["node1"].stop(down_ms=2_000)
        cheat = Signer(b"cheat".ljust(32, b"."))
        for version, (source, target) in enumerate([("node2", "node3"), ("node3", "node4"), ("node4", "node0")]):
            network.push(source, target, EnvelopeCodec(network.manifest).seal(cheat, 3, (version + 1,)).record)
        network.run(2_000)
        late = network.add("late", "node3", expects_peers=True)
        network.run_until_agreement(300_000)

        assert len(network.digests()) == 1
        assert late.node is not None and late.node.own_steps.updates > 0
        assert late.node.replica.ledger.void_slots == 1
        assert network.starts() == {**dict.fromkeys(network.hosts, 1), "node1": 2}
