"""The world that clients live in: who has which examples, and how late an update reaches whom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.graphs import GRAPHS, distances

Int64Array = NDArray[np.int64]


def dealt(labels: Sequence[int], clients: int, alpha: float, seed: int) -> list[list[int]]:
    """Places of each client's examples: every example has one owner, and nobody goes without any.

    Each label's examples are dealt out by shares drawn from Dirichlet(``alpha``) (Hsu, Qi & Brown 2019,
    arXiv 1909.06335): with 0.1 most clients see one label or two, with 1,000 all see the same mixture.
    """
    generator = np.random.default_rng([seed, clients])
    order = generator.permutation(len(labels))
    owned = [[place] for place in order[:clients].tolist()]
    rest = order[clients:]
    of_rest = np.array(labels)[rest]
    for label in np.unique(of_rest):
        places = rest[of_rest == label]
        ends = np.cumsum(generator.dirichlet([alpha] * clients))[:-1] * len(places)
        for client, part in enumerate(np.split(places, ends.astype(int))):
            owned[client] += part.tolist()
    return [sorted(each) for each in owned]


def alike(labels: Sequence[int], clients: int, seed: int) -> list[list[int]]:
    """The same, dealt out at random: as many for everybody, give or take one."""
    order = np.random.default_rng(seed).permutation(len(labels))
    return [sorted(order[client::clients].tolist()) for client in range(clients)]


def delays(graph: str, clients: int, hops: int) -> Int64Array:
    """Steps until an update counts, int64[author, receiver]: it travels ``hops`` hops in each.

    One that arrives within its step counts from the next, as does the author's own.
    """
    edges = GRAPHS[graph](clients)
    away = np.array([distances(edges, clients, author) for author in range(clients)], dtype=np.int64)
    return np.maximum(1, -(-away // hops))
