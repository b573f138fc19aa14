"""Graphs to connect nodes by: edges between 0 ... n-1, and their distances."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable

Edges = tuple[tuple[int, int], ...]


def ring(count: int) -> Edges:
    """Each node with the next: degree 2, diameter n/2."""
    return _normal((node, (node + 1) % count) for node in range(count))


def torus(count: int) -> Edges:
    """A grid without a border, as square as n allows: degree 4, diameter about sqrt(n)."""
    columns = next(width for width in range(int(count**0.5), 0, -1) if count % width == 0)
    rows = count // columns
    right = ((r * columns + c, r * columns + (c + 1) % columns) for r in range(rows) for c in range(columns))
    down = ((r * columns + c, (r + 1) % rows * columns + c) for r in range(rows) for c in range(columns))
    return _normal([*right, *down])


def star(count: int) -> Edges:
    """All with node 0, which is everybody's neighbour: diameter 2."""
    return _normal((0, node) for node in range(1, count))


def random_of_degree(degree: int) -> Callable[[int], Edges]:
    """Connected random graphs in which every node has ``degree`` neighbours (few one less): diameter about log n."""

    def build(count: int) -> Edges:
        for seed in range(100):
            edges = _drawn(count, degree, random.Random(seed))
            if None not in distances(edges, count, 0):
                return edges
        raise RuntimeError(f"no connected graph of {count} nodes and degree {degree}")

    return build


def _drawn(count: int, degree: int, source: random.Random) -> Edges:
    """As many random matchings as the degree; a pair that is there already, or a node with itself, is left out."""
    pairs: set[tuple[int, int]] = set()
    for _ in range(degree):
        order = list(range(count))
        for _attempt in range(50):
            source.shuffle(order)
            drawn = {(min(a, b), max(a, b)) for a, b in zip(order[::2], order[1::2], strict=False)}
            if not drawn & pairs:
                break
        pairs |= drawn
    return _normal(pairs)


def distances(edges: Edges, count: int, start: int) -> list[int | None]:
    """Hops from ``start`` to every node; None where none leads."""
    neighbours: list[list[int]] = [[] for _ in range(count)]
    for one, other in edges:
        neighbours[one].append(other)
        neighbours[other].append(one)
    found: list[int | None] = [None] * count
    found[start] = 0
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for near in neighbours[node]:
            if found[near] is None:
                found[near] = (found[node] or 0) + 1
                waiting.append(near)
    return found


def _normal(edges: Iterable[tuple[int, int]]) -> Edges:
    """Each edge once, the smaller number first, in order."""
    return tuple(sorted({(min(a, b), max(a, b)) for a, b in edges if a != b}))


GRAPHS: dict[str, Callable[[int], Edges]] = {
    "ring": ring,
    "torus": torus,
    "random 4": random_of_degree(4),
    "random 8": random_of_degree(8),
    "star": star,
}
