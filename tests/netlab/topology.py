"""Who has a cable to whom: edges between 0 ... n-1, the higher end of which dials the lower one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from benchmarks.graphs import Edges, random_of_degree, ring


def line(count: int) -> Edges:
    """Each with the next."""
    return tuple(pairwise(range(count)))


def grid(count: int) -> Edges:
    """Rows as long as there are rows, the last one perhaps shorter; each with those to its right and below."""
    columns = max(1, round(count**0.5))
    right = ((node, node + 1) for node in range(count - 1) if (node + 1) % columns)
    down = ((node, node + columns) for node in range(count - columns))
    return tuple(sorted((*right, *down)))


def two_islands(count: int) -> Edges:
    """Two rings and one bridge between them, the last edge."""
    half = count // 2
    west = ring(half)
    east = tuple((one + half, other + half) for one, other in ring(count - half))
    return (*west, *east, (half - 1, half))


TOPOLOGIES: dict[str, Callable[[int], Edges]] = {
    "line": line,
    "ring": ring,
    "grid": grid,
    "random": random_of_degree(4),
    "two islands": two_islands,
}
