"""SeedFlood's rivals as update rules on flat vectors, one for each client: on a quadratic as on a language model.

A rule asks an oracle for gradients, moves all clients by one step, and mixes. What an oracle is, and how many bytes a
rule sends, is elsewhere.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9  # DiLoCo's own (section 3.1)


class Oracle(Protocol):
    """The clients' own examples: what a step sees of them."""

    def gradient(self, client: int, step: int, weights_D: Tensor) -> Tensor:
        """Of the mean loss of the client's batch of this step, fp32[D]."""

    def loss(self, client: int, step: int, weights_D: Tensor) -> float:
        """Mean loss of the same batch."""


class Rule(Protocol):
    """An update rule and its state."""

    weights_ND: Tensor  # noqa: N815 - the suffix names its axes

    def step(self, number: int) -> None:
        """All clients take step ``number``, counted from 0, and send what they send."""


class ZerothOrder:
    """An oracle whose gradient is MeZO's estimate: g z of one normal direction z, with
    g = (loss(w + eps z) - loss(w - eps z)) / 2 eps (Malladi et al. 2023, arXiv 2305.17333, algorithm 1).

    In `Dsgd` this is DZSGD, and with one client MeZO itself.
    """

    def __init__(self, oracle: Oracle, epsilon: float, seed: int) -> None:
        self._oracle, self._epsilon, self._seed = oracle, epsilon, seed

    def loss(self, client: int, step: int, weights_D: Tensor) -> float:
        """As of the oracle below."""
        return self._oracle.loss(client, step, weights_D)

    def gradient(self, client: int, step: int, weights_D: Tensor) -> Tensor:
        """The estimate."""
        z_D = self.direction(client, step, weights_D.numel())
        plus = self._oracle.loss(client, step, weights_D + self._epsilon * z_D)
        minus = self._oracle.loss(client, step, weights_D - self._epsilon * z_D)
        return z_D.mul_((plus - minus) / (2 * self._epsilon))

    def direction(self, client: int, step: int, size: int) -> Tensor:
        """z, fp32[size]: another for every seed, client and step. By NumPy: torch takes 32 bits of a seed."""
        generator = np.random.default_rng([self._seed, client, step])
        return torch.from_numpy(generator.standard_normal(size, dtype=np.float32))


class Dsgd:
    """x_i <- sum_j W_ij x_j - rate g_i(x_i): D-PSGD of Lian et al. 2017 (arXiv 1705.09056, algorithm 1).

    Sends: all numbers, to every neighbour.
    """

    def __init__(self, start_D: Tensor, mixing_NN: Tensor, oracle: Oracle, rate: float) -> None:
        self.weights_ND = start_D.repeat(len(mixing_NN), 1)
        self._mixing_NN, self._oracle, self._rate = mixing_NN, oracle, rate

    def step(self, number: int) -> None:
        """Gradients at the own weights, taken off the neighbours' mean."""
        moves_ND = gradients(self._oracle, number, self.weights_ND)
        self.weights_ND = torch.addmm(moves_ND, self._mixing_NN, self.weights_ND, beta=-self._rate)


class ChocoSgd:
    """Gossip of compressed differences, with error feedback: Koloskova et al. 2019 (arXiv 1902.00340, algorithm 2).

    h_i = x_i - rate g_i(x_i);  y_i <- y_i + top_k(h_i - y_i);  x_i = h_i + pull sum_j W_ij (y_j - y_i).
    y_i is what everybody knows of client i: at the start the common model. What top-k leaves out stays in the
    difference, and so comes later. Sends: the k largest values with their places, to every neighbour.
    """

    def __init__(
        self, start_D: Tensor, mixing_NN: Tensor, oracle: Oracle, rate: float, *, kept: int, pull: float
    ) -> None:
        self.weights_ND = start_D.repeat(len(mixing_NN), 1)
        self.known_ND = self.weights_ND.clone()
        self._mixing_NN, self._oracle, self._rate = mixing_NN, oracle, rate
        self._kept, self._pull = kept, pull

    def step(self, number: int) -> None:
        """A gradient step, a message, a pull towards what the neighbours are known to have."""
        half_ND = self.weights_ND - self._rate * gradients(self._oracle, number, self.weights_ND)
        sent_ND = torch.stack([top(gap_D, self._kept) for gap_D in half_ND - self.known_ND])
        self.known_ND += sent_ND
        around_ND = self._mixing_NN @ self.known_ND - self.known_ND
        self.weights_ND = half_ND.add_(around_ND, alpha=self._pull)


class DiLoCo:
    """Rounds of AdamW at each client, and Nesterov's momentum on their mean: Douillard et al. 2023 (arXiv 2311.08105,
    algorithm 1).

    After ``inner`` steps the outer gradient is d = x - mean_i(x_i); v <- m v + d; x <- x - outer (d + m v), and all
    clients go on from x, each with its own AdamW state. Sends: all numbers once a round, to and from a centre.
    """

    def __init__(
        self, start_D: Tensor, clients: int, oracle: Oracle, rate: float, *, inner: int, outer: float = OUTER_RATE
    ) -> None:
        self.weights_ND = start_D.repeat(clients, 1)
        self._oracle, self._inner, self._outer = oracle, inner, outer
        self._common_D, self._speed_D = start_D.clone(), torch.zeros_like(start_D)
        self._own = [torch.nn.Parameter(weights_D) for weights_D in self.weights_ND]  # views
        self._optimisers = [torch.optim.AdamW([own], lr=rate, weight_decay=0.0) for own in self._own]

    def step(self, number: int) -> None:
        """An inner step; the round's end after the last one."""
        for client, (own, optimiser) in enumerate(zip(self._own, self._optimisers, strict=True)):
            own.grad = self._oracle.gradient(client, number, own.data)
            optimiser.step()
            own.grad = None
        if (number + 1) % self._inner == 0:
            self._meet()

    def _meet(self) -> None:
        gap_D = self._common_D - self.weights_ND.mean(dim=0)
        self._speed_D.mul_(OUTER_MOMENTUM).add_(gap_D)
        self._common_D.sub_(gap_D + OUTER_MOMENTUM * self._speed_D, alpha=self._outer)
        self.weights_ND.copy_(self._common_D.expand_as(self.weights_ND))


def gradients(oracle: Oracle, number: int, weights_ND: Tensor) -> Tensor:
    """Every client's own at its own weights, fp32[N, D]."""
    return torch.stack([oracle.gradient(client, number, own_D) for client, own_D in enumerate(weights_ND)])


def top(values_D: Tensor, kept: int) -> Tensor:
    """``values_D`` with all but the ``kept`` largest, by magnitude, at zero."""
    places = values_D.abs().topk(kept).indices
    return torch.zeros_like(values_D).scatter_(0, places, values_D[places])
