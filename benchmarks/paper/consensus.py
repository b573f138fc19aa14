"""How one client's update gets to all: gossip averages it away round by round, a flood has told everybody after as
many rounds as the graph is wide (the paper's figure 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from benchmarks import svg
from benchmarks.charts import DASHED, Axis, Chart, Line, render_chart
from benchmarks.graphs import GRAPHS, distances
from benchmarks.paper.rivals import metropolis

PICTURE: Final = "consensus.svg"
CLOSE: Final = 0.01  # of the distance at the start
_ROUNDS_MAX: Final = 10_000
_COLOURS: Final = (svg.BLUE, svg.TEAL, svg.ORANGE, svg.PURPLE)


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


def consensus_picture(agreed: Sequence[Consensus]) -> str:
    """Rounds against the number of clients for each graph, as SVG; dashed: flooding."""
    lines = []
    for graph, colour in zip(dict.fromkeys(each.graph for each in agreed), _COLOURS, strict=False):
        here = [each for each in agreed if each.graph == graph]
        gossiped = tuple((float(each.clients), float(each.gossip_rounds)) for each in here)
        flooded = tuple((float(each.clients), float(each.flood_rounds)) for each in here)
        lines += [
            Line(name=f"{graph}, gossip", points=gossiped, colour=colour),
            Line(name=f"{graph}, flood", points=flooded, colour=colour, dashes=DASHED),
        ]
    sizes = dict.fromkeys(each.clients for each in agreed)
    chart = Chart(
        title="Rounds until all agree about one update",
        note=f"gossip: until {CLOSE:.0%} of the distance is left; dashed: flooding, until nobody lacks it",
        x=Axis(name="clients", is_log=True, ticks=tuple((float(clients), str(clients)) for clients in sizes)),
        y=Axis(name="rounds", is_log=True),
        lines=tuple(lines),
    )
    return render_chart(chart)
