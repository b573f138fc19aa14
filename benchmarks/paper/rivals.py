"""The update rules that SeedFlood is compared with, each as its authors wrote it, on one flat vector for each client.

A rule knows neither models nor data: it asks a `Problem` for gradients or losses. So the very rule that trains a
language model is checked on a quadratic whose answer is known. Shapes: n clients, p parameters; `weights_NP` is fp32
[n, p], a row for each client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from benchmarks.graphs import Edges

FP32_BYTES = 4
INDEX_BYTES = 8  # of a coordinate that top-k has chosen: int64, as the paper's figures have it
_BLOCK = 1 << 16  # weights of each client that are mixed at a time: 16 clients' stay in the cache


class Problem(Protocol):
    """What the clients minimise together: the mean of their losses.

    Attributes:
        seed: of the run, below 256: other batches, other directions.
    """

    seed: int

    def gradient(self, clients: Sequence[int], weights: Tensor, step: int) -> Tensor:
        """Of the mean of these clients' losses, each on its batch of the step, fp32[p]."""

    def loss(self, clients: Sequence[int], weights: Tensor, step: int) -> float:
        """On the same batches, by forward passes alone."""


def metropolis(edges: Edges, count: int) -> Tensor:
    """Mixing weights fp32[n, n], symmetric and doubly stochastic: 1 / (1 + the larger degree) over an edge, the rest
    stays (Xiao, Boyd & Kim 2007)."""
    degrees = [sum(node in edge for edge in edges) for node in range(count)]
    mixing = torch.zeros(count, count)
    for one, other in edges:
        mixing[one, other] = mixing[other, one] = 1 / (1 + max(degrees[one], degrees[other]))
    return mixing + torch.diag(1 - mixing.sum(dim=1))


def zeroth_order(problem: Problem, clients: Sequence[int], weights: Tensor, step: int, epsilon: float) -> Tensor:
    """The SPSA estimate g z of these clients' gradient, fp32[p], with a normal z of the first (MeZO, algorithm 1)."""
    number = step << 16 | problem.seed << 8 | clients[0]  # torch takes 32 bits of it on the CPU
    z = torch.empty_like(weights).normal_(generator=torch.Generator().manual_seed(number))
    plus, minus = (problem.loss(clients, torch.add(weights, z, alpha=sign * epsilon), step) for sign in (1, -1))
    return z.mul_((plus - minus) / (2 * epsilon))


def add_mixed(weights_NP: Tensor, mixing: Tensor, told_NP: Tensor) -> None:
    """``weights += mixing @ told`` in place, block by block: no second copy of all weights."""
    for start in range(0, weights_NP.shape[1], _BLOCK):
        block = slice(start, start + _BLOCK)
        weights_NP[:, block] += mixing @ told_NP[:, block]


def largest(values_P: Tensor, count: int) -> Tensor:
    """Places of the ``count`` values that are farthest from zero, int64[count]; of equal ones the last."""
    sizes = values_P.abs().numpy()
    least = np.partition(sizes, -count)[-count]  # three times as fast as torch's topk
    chosen = np.flatnonzero(sizes >= least)
    equal = chosen[sizes[chosen] == least]
    return torch.from_numpy(np.setdiff1d(chosen, equal[: len(chosen) - count], assume_unique=True))


class Rival(ABC):
    """One method: every client's weights, and what a step does to them.

    Attributes:
        weights_NP: of all clients.
        sent_bytes: over one edge in one direction so far: payload alone, no framing.
    """

    def __init__(self, problem: Problem, start: Tensor, count: int, rate: float) -> None:
        self.weights_NP = start.repeat(count, 1)
        self.sent_bytes = 0.0
        self._problem, self._rate = problem, rate

    @property
    def count(self) -> int:
        """Of clients."""
        return len(self.weights_NP)

    @abstractmethod
    def step(self, number: int) -> None:
        """All clients make step ``number``, and tell each other."""

    def mean(self) -> Tensor:
        """The model that is judged: the mean of the clients' weights, fp32[p]."""
        return self.weights_NP.mean(dim=0)

    def disagreement(self) -> float:
        """Root mean square distance of the clients' weights from their mean."""
        return float((self.weights_NP - self.mean()).square().sum(dim=1).mean().sqrt())


class Dsgd(Rival):
    """Decentralised SGD (Lian et al. 2017): a gradient step each, then the mean over the neighbours.

    Their algorithm 1 takes the mean first and subtracts the gradient then; here what is sent has it already.
    """

    def __init__(self, problem: Problem, start: Tensor, mixing: Tensor, rate: float) -> None:
        super().__init__(problem, start, len(mixing), rate)
        self._towards = mixing - torch.eye(len(mixing))  # what a client adds of its neighbours' difference from it

    def step(self, number: int) -> None:
        """x_i <- sum over j of W_ij (x_j - rate g_j)."""
        self._move(number)
        add_mixed(self.weights_NP, self._towards, self.weights_NP)
        self.sent_bytes += FP32_BYTES * self.weights_NP.shape[1]

    def _move(self, number: int) -> None:
        for client, weights in enumerate(self.weights_NP):
            weights.sub_(self._gradient(client, weights, number), alpha=self._rate)

    def _gradient(self, client: int, weights: Tensor, number: int) -> Tensor:
        return self._problem.gradient([client], weights, number)


class Dzsgd(Dsgd):
    """The same with each client's zeroth-order estimate in place of its gradient: gossip of what MeZO gives."""

    def __init__(self, problem: Problem, start: Tensor, mixing: Tensor, rate: float, epsilon: float = 1e-3) -> None:
        super().__init__(problem, start, mixing, rate)
        self._epsilon = epsilon

    def _gradient(self, client: int, weights: Tensor, number: int) -> Tensor:
        return zeroth_order(self._problem, [client], weights, number, self._epsilon)


class ChocoSgd(Dsgd):
    """ChocoSGD (Koloskova, Stich & Jaggi 2019, algorithm 2) with top-k: what is not sent stays in the difference.

    ``share`` of the coordinates are sent; ``consensus`` is the step towards the neighbours' public copies.
    """

    def __init__(
        self, problem: Problem, start: Tensor, mixing: Tensor, rate: float, share: float = 0.01, consensus: float = 0.4
    ) -> None:
        super().__init__(problem, start, mixing, rate)
        self._sent = max(1, int(share * len(start)))
        self._consensus = consensus
        self._public_NP = self.weights_NP.clone()  # all start alike, so every copy is known

    def step(self, number: int) -> None:
        """x_i <- x_i - rate g_i; x^_i += top_k(x_i - x^_i); x_i += consensus sum of W_ij (x^_j - x^_i)."""
        self._move(number)
        for public, weights in zip(self._public_NP, self.weights_NP, strict=True):
            missing = weights - public
            chosen = largest(missing, self._sent)
            public[chosen] += missing[chosen]
        add_mixed(self.weights_NP, self._consensus * self._towards, self._public_NP)
        self.sent_bytes += (FP32_BYTES + INDEX_BYTES) * self._sent


class DiLoCo(Rival):
    """DiLoCo (Douillard et al. 2023, algorithm 1): H steps of AdamW each, then Nesterov on the mean of what changed.

    The mean is exact, as an all-reduce gives it; its bytes are those of one exchange of all weights.
    """

    def __init__(
        self, problem: Problem, start: Tensor, count: int, rate: float, inner: int = 16, outer_rate: float = 0.7
    ) -> None:
        super().__init__(problem, start, count, rate)
        self._shared, self._momentum = start.clone(), torch.zeros_like(start)
        self._adams = [Adam(len(start), rate) for _ in range(count)]
        self._inner, self._outer_rate = inner, outer_rate

    def step(self, number: int) -> None:
        """An inner step of each client; an outer one after every H of them."""
        for client, (weights, adam) in enumerate(zip(self.weights_NP, self._adams, strict=True)):
            weights.sub_(adam.direction(self._problem.gradient([client], weights, number)))
        if (number + 1) % self._inner:
            return
        change = self._shared - self.mean()
        self._momentum = 0.9 * self._momentum + change
        self._shared = self._shared - self._outer_rate * (change + 0.9 * self._momentum)
        self.weights_NP = self._shared.repeat(self.count, 1)
        self.sent_bytes += FP32_BYTES * len(change)


class Central(Rival):
    """One model that sees all clients' batches: what no network can beat. Nothing is sent."""

    def __init__(self, problem: Problem, start: Tensor, count: int, rate: float) -> None:
        super().__init__(problem, start, 1, rate)
        self._clients, self._adam = range(count), Adam(len(start), rate)

    def step(self, number: int) -> None:
        """AdamW (Loshchilov & Hutter 2019) on the mean gradient."""
        model = self.weights_NP[0]
        model -= self._adam.direction(self._problem.gradient(self._clients, model, number))


class CentralMezo(Central):
    """MeZO (Malladi et al. 2023) on all clients' batches together: one direction a step."""

    def step(self, number: int) -> None:
        """x <- x - rate g z, with g from the mean loss of all batches."""
        self.weights_NP -= self._rate * zeroth_order(self._problem, self._clients, self.mean(), number, 1e-3)


class Adam:
    """AdamW without weight decay: the moments of one vector."""

    def __init__(self, size: int, rate: float) -> None:
        self._mean, self._square = torch.zeros(size), torch.zeros(size)
        self._rate, self._steps = rate, 0

    def direction(self, gradient: Tensor) -> Tensor:
        """What to subtract from the weights, fp32[p]."""
        self._steps += 1
        self._mean.lerp_(gradient, 0.1)
        self._square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        size = self._square.sqrt().div_((1 - 0.999**self._steps) ** 0.5).add_(1e-8)
        return torch.div(self._mean, size, out=size).mul_(self._rate / (1 - 0.9**self._steps))
