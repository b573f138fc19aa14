"""Who is a neighbour of whom: the shapes of network in which a fault may hide."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

Edge = tuple[int, int]

TOPOLOGIES = ("line", "ring", "star", "cliques", "sparse", "dense")


def edges(topology: str, count: int, chosen: random.Random) -> list[Edge]:
    """Pairs of node numbers; the graph is connected. A dense one hides what a line shows."""
    line = list(pairwise(range(count)))
    match topology:
        case "line":
            return line
        case "ring":
            return [*line, (0, count - 1)]
        case "star":
            return [(0, leaf) for leaf in range(1, count)]
        case "cliques":
            half = count // 2
            return [*combinations(range(half), 2), *combinations(range(half, count), 2), (half - 1, half)]
        case "sparse":
            tree = [(chosen.randrange(node), node) for node in range(1, count)]
            more = [edge for edge in combinations(range(count), 2) if edge not in tree and chosen.random() < 1 / count]
            return [*tree, *more]
        case "dense":
            return list(combinations(range(count), 2))
        case _:
            raise ValueError(f"no topology {topology!r}; there are {', '.join(TOPOLOGIES)}")
