"""An empty node joins through four peers: all honest, or one that lies in one of three ways and one that stalls.

    python -m benchmarks.join_among_impostors --json

Real cores in virtual time; the joiner checks every signature. Virtual seconds hold link delays and waiting alone; what
the joiner computes is reported beside them, in CPU seconds.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import click

from benchmarks.impostors import Impostor, empty_promises, garbage, stalls, wrong_digests
from benchmarks.measures import report, say
from benchmarks.sample_runs import Shape, manifest_of, sealed_records, trusted_replica
from benchmarks.virtual_network import CountedNetwork, VirtualTraffic, idle_node
from protocol.node import Node
from protocol.run import Manifest
from protocol.wire import PeerId
from sfnode.api.virtual_network import Core, VirtualLink

_LIMIT_MS = 600_000
_LOOK_MS = 100
_SUMMED = 64  # a small part of what one tick sums
_HONEST = ("honest 1", "honest 2", "honest 3", "honest 4")
# Who the four are; the rest of the name, up to the digit, is what they do.
SCENARIOS = {
    "four honest": _HONEST,
    "wrong digests": (*_HONEST[:2], "wrong digests", "stalls"),
    "empty promises": (*_HONEST[:2], "empty promises", "stalls"),
    "garbage": (*_HONEST[:2], "garbage", "stalls"),
}
_BENDS = {"wrong digests": wrong_digests, "empty promises": empty_promises, "garbage": garbage, "stalls": stalls}


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinCost:
    """One join.

    Attributes:
        live_s, summed_s: virtual seconds until the joiner is live, and until its updates are summed.
        bytes_least: of the records alone; bytes_down: of all that came to the joiner.
        share_percent: by peer, of what was pulled.
        dropped: peers that any node dropped.
    """

    live_s: float
    summed_s: float
    updates: int
    bytes_least: int
    bytes_down: int
    overhead_percent: float
    bytes_up: int
    share_percent: dict[str, float]
    sessions_completed: int
    sessions_failed: int
    dropped: tuple[str, ...]
    joiner_cpu_s: float
    peers_cpu_s: dict[str, float]


def measure(shape: Shape, seeds: int = 1) -> dict[str, list[JoinCost]]:
    """Every scenario with the same ledger, once for each seed: link delays differ, and with them who answers first."""
    manifest = manifest_of(shape)
    records = list(sealed_records(manifest, shape))
    result: dict[str, list[JoinCost]] = {}
    for name, peers in SCENARIOS.items():
        say(f"{name}: {', '.join(peers)}")
        result[name] = [_join(manifest, records, peers, seed) for seed in range(seeds)]
    return result


def _join(manifest: Manifest, records: list[bytes], peers: tuple[str, ...], seed: int) -> JoinCost:
    network = CountedNetwork(seed=seed, link=VirtualLink())
    expected = trusted_replica(manifest, records)
    root = expected.ledger.root()
    joiner = idle_node(manifest, "joiner")
    me = network.add("joiner", joiner)
    for name in peers:
        network.add(name, _peer(manifest, name, records, seed))
    network.run(2_000)
    started_ms = network.now_ms
    for name in peers:
        network.connect(me, PeerId(name))
    while joiner.replica.ledger.root() != root or not joiner.sync.is_live:
        _go_on(network, started_ms)
    live_ms = network.now_ms - started_ms
    while joiner.replica.unsummed > _SUMMED:
        _go_on(network, started_ms)
    summed_ms = network.now_ms - started_ms
    assert joiner.replica.state_digest() == expected.state_digest()
    return _cost(network, me, joiner, peers, live_ms=live_ms, summed_ms=summed_ms)


def _peer(manifest: Manifest, name: str, records: list[bytes], seed: int) -> Core:
    """A peer that holds everything; each took it in in another order."""
    shuffled = list(records)
    random.Random(f"{seed} {name}").shuffle(shuffled)
    node = idle_node(manifest, name, trusted_replica(manifest, shuffled))
    return Impostor(node, _BENDS[name]) if name in _BENDS else node


def _go_on(network: CountedNetwork, started_ms: int) -> None:
    network.run(_LOOK_MS)
    if network.now_ms - started_ms > _LIMIT_MS:
        raise RuntimeError(f"not live after {_LIMIT_MS} virtual ms")


def _cost(
    network: CountedNetwork, me: PeerId, joiner: Node, peers: tuple[str, ...], *, live_ms: int, summed_ms: int
) -> JoinCost:
    down = {name: network.traffic[PeerId(name), me] for name in peers}
    up = sum(sum(network.traffic[me, PeerId(name)].bytes.values()) for name in peers)
    least = joiner.replica.ledger.updates * joiner.replica.ledger.codec.record_bytes
    total = sum(sum(traffic.bytes.values()) for traffic in down.values())
    return JoinCost(
        live_s=live_ms / 1e3,
        summed_s=summed_ms / 1e3,
        updates=joiner.replica.ledger.updates,
        bytes_least=least,
        bytes_down=total,
        overhead_percent=round(100 * (total / least - 1), 1),
        bytes_up=up,
        share_percent={name: _share(traffic, down) for name, traffic in down.items()},
        sessions_completed=joiner.sync.sessions_completed,
        sessions_failed=joiner.sync.sessions_failed,
        dropped=tuple(str(peer) for _, peer, _ in network.dropped),
        joiner_cpu_s=round(sum(network.cpu_seconds[me].values()), 2),
        peers_cpu_s={name: round(sum(network.cpu_seconds[PeerId(name)].values()), 2) for name in peers},
    )


def _share(traffic: VirtualTraffic, down: dict[str, VirtualTraffic]) -> float:
    """Percent of the pulled bytes that came over this link."""
    return round(100 * traffic.bytes["pull"] / sum(other.bytes["pull"] for other in down.values()), 1)


def _told(name: str, runs: list[JoinCost]) -> list[str]:
    """A scenario in three lines: medians, and the worst in brackets."""
    shares = {peer: median(run.share_percent[peer] for run in runs) for peer in runs[0].share_percent}
    return [
        f"{name}: live after {_middle(run.live_s for run in runs)} s, "
        f"all summed after {_middle(run.summed_s for run in runs)} s",
        f"  {runs[0].updates:,} updates, {runs[0].bytes_least / 1e6:.2f} MB of records, "
        f"overhead {_middle(run.overhead_percent for run in runs)} %; "
        f"joiner {_middle(run.joiner_cpu_s for run in runs)} s of CPU",
        f"  median shares {shares}; dropped {sum(len(run.dropped) for run in runs)} peers in {len(runs)} runs",
    ]


def _middle(values: Iterable[float]) -> str:
    ordered = sorted(values)
    return f"{median(ordered):.1f} ({ordered[-1]:.1f})"


@click.command()
@click.option("--authors", default=10, show_default=True)
@click.option("--steps", default=4_000, show_default=True, help="Updates of each author.")
@click.option(
    "--seeds", default=5, show_default=True, help="Runs of each scenario; medians are reported, worst in brackets."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def main(authors: int, steps: int, seeds: int, as_json: bool) -> None:
    """Anti-entropy join of an empty node against four peers."""
    result = measure(Shape(authors=authors, steps=steps), seeds)
    lines = [line for name, runs in result.items() for line in _told(name, runs)]
    report(result, as_json=as_json, lines=lines)


if __name__ == "__main__":
    main()
