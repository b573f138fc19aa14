"""How one client's update gets to all: gossip averages it away round by round, a flood has told everybody after as
many rounds as the graph is wide (the paper's figure 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from benchmarks.graphs import GRAPHS, distances
from benchmarks.paper.rivals import metropolis

CLOSE: Final = 0.01  # of the distance at the start
_ROUNDS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Consensus:
    """Rounds until all agree about one update: exactly by flooding, to one hundredth by gossip.

    Attributes:
        gossip: at each round, how far the clients are from their mean, as a share of the start (root mean square).
        flood: at each round, the share of clients that lack the update.
    """

    graph: str
    clients: int
    gossip: tuple[float, ...]
    flood: tuple[float, ...]

    @property
    def gossip_rounds(self) -> int:
        """Until `CLOSE`."""
        return len(self.gossip) - 1

    @property
    def flood_rounds(self) -> int:
        """Until nobody lacks it."""
        return len(self.flood) - 1


def consensus(graph: str, clients: int) -> Consensus:
    """Of an update of the last client, which is never a star's middle."""
    edges = GRAPHS[graph](clients)
    hops = [each or 0 for each in distances(edges, clients, clients - 1)]
    flood = tuple(sum(hop > number for hop in hops) / clients for number in range(max(hops) + 1))
    return Consensus(graph=graph, clients=clients, gossip=_gossip(metropolis(edges, clients)), flood=flood)


def _gossip(mixing: torch.Tensor) -> tuple[float, ...]:
    held = torch.zeros(len(mixing), dtype=torch.float64)
    held[-1] = 1.0
    mixing, mean = mixing.double(), held.mean()
    first = float((held - mean).norm())
    left = [1.0]
    while left[-1] > CLOSE and len(left) < _ROUNDS_MAX:
        held = mixing @ held
        left.append(float((held - mean).norm()) / first)
    return tuple(left)
