"""The paper's rivals on a quadratic: each against its rule written out, and at the minimum that is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from benchmarks.paper.rivals import ChocoSgd, DiLoCo, Dsgd, Rule, ZerothOrder, top

CLIENTS, SIZE = 4, 6
MIXING_NN = torch.tensor([[2.0, 1, 0, 1], [1, 2, 1, 0], [0, 1, 2, 1], [1, 0, 1, 2]]) / 4  # a ring
START_D = torch.linspace(-1.0, 1.0, SIZE)
SCALES_D = torch.tensor([1.0, 0.5, 2.0, 1.0, 0.8, 1.2])


class Quadratic:
    """loss_i(w) = sum_d s_d (w_d - c_id)^2 / 2: the mean of all has its minimum at the mean of the c_i."""

    def __init__(self, spread: float = 1.0) -> None:
        self.centres_ND = 2 + spread * torch.randn(CLIENTS, SIZE, generator=torch.Generator().manual_seed(1))

    def gradient(self, client: int, step: int, weights_D: Tensor) -> Tensor:
        return SCALES_D * (weights_D - self.centres_ND[client])

    def loss(self, client: int, step: int, weights_D: Tensor) -> float:
        return float((SCALES_D.double() * (weights_D - self.centres_ND[client]).double().square()).sum()) / 2

    @property
    def minimum(self) -> Tensor:
        return self.centres_ND.mean(dim=0)


WORLD = Quadratic()
ALIKE = Quadratic(spread=0.0)  # AdamW's steps are nearly signs: where clients differ, their mean is another point


def by_hand(client: int, weights_D: Tensor) -> Tensor:
    return SCALES_D * (weights_D - WORLD.centres_ND[client])


def test_dsgd__two_steps__are_the_neighbours_mean_less_the_own_gradient() -> None:
    rule = Dsgd(START_D, MIXING_NN, WORLD, 0.1)
    expected = [START_D] * CLIENTS
    for number in range(2):
        rule.step(number)
        expected = [
            0.5 * expected[i] + 0.25 * expected[i - 1] + 0.25 * expected[(i + 1) % CLIENTS]
            - 0.1 * by_hand(i, expected[i])
            for i in range(CLIENTS)
        ]  # fmt: skip
    torch.testing.assert_close(rule.weights_ND, torch.stack(expected))


def test_choco__two_steps__send_the_largest_differences_and_keep_the_rest_for_later() -> None:
    rule = ChocoSgd(START_D, MIXING_NN, WORLD, 0.1, kept=2, pull=0.3)
    own, known = [START_D] * CLIENTS, [START_D] * CLIENTS
    for number in range(2):
        rule.step(number)
        half = [own[i] - 0.1 * by_hand(i, own[i]) for i in range(CLIENTS)]
        for i in range(CLIENTS):
            gap = half[i] - known[i]
            second = sorted(map(abs, gap.tolist()))[-2]
            known[i] = torch.where(gap.abs() >= second, half[i], known[i])
        around = [
            0.25 * (known[i - 1] - known[i]) + 0.25 * (known[(i + 1) % CLIENTS] - known[i]) for i in range(CLIENTS)
        ]
        own = [half[i] + 0.3 * around[i] for i in range(CLIENTS)]
    torch.testing.assert_close(rule.weights_ND, torch.stack(own))
    torch.testing.assert_close(rule.known_ND, torch.stack(known))


def test_diloco__a_round_of_one_inner_step__is_adamw_then_nesterov() -> None:
    rule = DiLoCo(START_D, CLIENTS, WORLD, 0.1, inner=1)
    rule.step(0)
    # AdamW's first step is the rate times the gradient's sign.
    ends = [START_D - 0.1 * by_hand(i, START_D).sign() for i in range(CLIENTS)]
    gap_D = START_D - torch.stack(ends).mean(dim=0)
    expected_D = START_D - 0.7 * (gap_D + 0.9 * gap_D)
    torch.testing.assert_close(rule.weights_ND, expected_D.expand(CLIENTS, -1))
    before_D = expected_D
    rule.step(1)
    assert not torch.allclose(rule.weights_ND[0], before_D)
    assert torch.equal(rule.weights_ND[0], rule.weights_ND[-1])


def test_diloco__within_a_round__clients_go_their_own_ways_by_adamw() -> None:
    rule = DiLoCo(START_D, CLIENTS, WORLD, 0.1, inner=3)
    alone = [torch.nn.Parameter(START_D.clone()) for _ in range(CLIENTS)]
    optimisers = [torch.optim.AdamW([own], lr=0.1, weight_decay=0.0) for own in alone]
    for number in range(2):
        rule.step(number)
        for client, optimiser in enumerate(optimisers):
            alone[client].grad = by_hand(client, alone[client].data)
            optimiser.step()
    torch.testing.assert_close(rule.weights_ND, torch.stack([own.data for own in alone]))


def test_zeroth_order__on_a_quadratic__is_the_exact_slope_along_its_direction() -> None:
    oracle = ZerothOrder(WORLD, 1e-3, seed=3)
    z_D = oracle.direction(1, 5, SIZE)
    expected_D = z_D * (z_D @ by_hand(1, START_D))
    torch.testing.assert_close(oracle.gradient(1, 5, START_D), expected_D, rtol=1e-3, atol=1e-3)


def test_zeroth_order__clients_and_steps__draw_directions_of_their_own() -> None:
    oracle, other = ZerothOrder(WORLD, 1e-3, seed=3), ZerothOrder(WORLD, 1e-3, seed=4)
    drawn = [oracle.direction(0, 0, SIZE), oracle.direction(1, 0, SIZE), oracle.direction(0, 1, SIZE)]
    assert len({tuple(z.tolist()) for z in (*drawn, other.direction(0, 0, SIZE))}) == 4


@pytest.mark.parametrize(
    ("build", "world", "steps", "near"),
    [
        (lambda: Dsgd(START_D, MIXING_NN, WORLD, 0.02), WORLD, 600, 0.05),
        (lambda: ChocoSgd(START_D, MIXING_NN, WORLD, 0.02, kept=2, pull=0.3), WORLD, 600, 0.1),
        (lambda: Dsgd(START_D, MIXING_NN, ZerothOrder(WORLD, 1e-3, 0), 0.005), WORLD, 3_000, 0.15),
        (lambda: DiLoCo(START_D, CLIENTS, ALIKE, 0.01, inner=5), ALIKE, 1_000, 0.1),
    ],
    ids=["DSGD", "ChocoSGD", "DZSGD", "DiLoCo"],
)
def test_rule__many_steps__all_clients_mean_is_at_the_minimum_of_the_mean_loss(
    build: Callable[[], Rule], world: Quadratic, steps: int, near: float
) -> None:
    rule = build()
    for number in range(steps):
        rule.step(number)
    assert float((rule.weights_ND.mean(dim=0) - world.minimum).abs().max()) < near
    assert float((START_D - world.minimum).abs().max()) > 10 * near


def test_top__values_of_either_sign__keeps_the_largest_by_magnitude() -> None:
    assert top(torch.tensor([1.0, -5.0, 0.5, 3.0]), 2).tolist() == [0.0, -5.0, 0.0, 3.0]
