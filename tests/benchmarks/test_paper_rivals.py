"""The rivals' update rules, written out by hand on a quadratic whose minimum is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from benchmarks.graphs import ring
from benchmarks.paper.rivals import Central, CentralMezo, ChocoSgd, DiLoCo, Dsgd, Dzsgd, Rival, metropolis, zeroth_order

COUNT, SIZE = 4, 3
CENTRES = torch.tensor([[1.0, 0.0, 2.0], [3.0, 1.0, 0.0], [0.0, 2.0, 1.0], [4.0, 5.0, 1.0]])
START = torch.tensor([5.0, -5.0, 3.0])
RING = metropolis(ring(COUNT), COUNT)


class Quadratic:
    """Client i's loss is |x - c_i|^2 / 2: the best common x is the mean of the c_i."""

    def __init__(self, centres: Tensor = CENTRES, seed: int = 0) -> None:
        self._centres, self.seed = centres, seed

    def gradient(self, clients: Sequence[int], weights: Tensor, step: int) -> Tensor:
        return weights - self._centres[[*clients]].mean(dim=0)

    def loss(self, clients: Sequence[int], weights: Tensor, step: int) -> float:
        return float((weights.double() - self._centres[[*clients]]).square().sum(dim=1).mean() / 2)


ALIKE = Quadratic(CENTRES.mean(dim=0).repeat(COUNT, 1))  # Adam's steps lead to the median of centres that differ


def played(rival: Rival, steps: int) -> Rival:
    for number in range(steps):
        rival.step(number)
    return rival


def test_metropolis__ring__is_a_third_each_and_sums_to_one() -> None:
    assert RING.sum(dim=0).tolist() == pytest.approx([1] * COUNT) and torch.equal(RING, RING.T)
    assert RING[0].tolist() == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])


def test_dsgd__one_step__is_the_neighbours_mean_of_gradient_steps() -> None:
    rival = played(Dsgd(Quadratic(), START, RING, 0.1), 1)
    moved = [START - 0.1 * (START - centre) for centre in CENTRES]
    assert torch.allclose(rival.weights_NP[0], (moved[0] + moved[1] + moved[3]) / 3)
    assert rival.sent_bytes == 4 * SIZE


def test_choco__one_step__sends_the_largest_difference_alone() -> None:
    rival = played(ChocoSgd(Quadratic(), START, RING, 0.1, share=0.34, consensus=0.5), 1)
    moved = torch.stack([START - 0.1 * (START - centre) for centre in CENTRES])
    public = START.repeat(COUNT, 1)
    for row in range(COUNT):
        place = int((moved[row] - START).abs().argmax())
        public[row, place] = moved[row, place]
    expected = moved[0] + 0.5 * ((public[0] + public[1] + public[3]) / 3 - public[0])
    assert torch.allclose(rival.weights_NP[0], expected) and rival.sent_bytes == 12


def test_zeroth_order__quadratic__is_the_exact_slope_along_z() -> None:
    z = torch.empty(SIZE).normal_(generator=torch.Generator().manual_seed(7 << 16 | 2))
    slope = float((START - CENTRES[2]) @ z)
    assert torch.allclose(zeroth_order(Quadratic(), [2], START, 7, 1e-3), slope * z, rtol=1e-3)


def test_zeroth_order__other_seed__is_another_direction() -> None:
    """MeZO's trials of `benchmarks.learn` had the same directions for every seed: torch drops the upper 32 bits."""
    first, second = (zeroth_order(Quadratic(seed=seed), [2], START, 7, 1e-3) for seed in (0, 1))
    assert not torch.allclose(first / first[0], second / second[0])


def test_diloco__one_outer_step__is_nesterov_on_the_mean_change() -> None:
    rival = played(DiLoCo(Quadratic(), START, COUNT, 0.1, inner=1), 1)
    change = (0.1 * (START - CENTRES).sign()).mean(dim=0)  # Adam's first step is the sign
    assert torch.allclose(rival.weights_NP[1], START - 0.7 * 1.9 * change, atol=1e-5)
    assert rival.sent_bytes == 4 * SIZE and rival.disagreement() == 0.0


@pytest.mark.parametrize(
    ("make", "steps", "tolerance"),
    [
        pytest.param(lambda: Dsgd(Quadratic(), START, RING, 0.02), 400, 0.01, id="DSGD"),
        pytest.param(lambda: ChocoSgd(Quadratic(), START, RING, 0.02, share=0.34), 600, 0.02, id="ChocoSGD"),
        pytest.param(lambda: Dzsgd(Quadratic(), START, RING, 0.005), 2_000, 0.3, id="DZSGD"),
        pytest.param(lambda: DiLoCo(ALIKE, START, COUNT, 0.01, inner=4), 1_200, 0.02, id="DiLoCo"),
        pytest.param(lambda: Central(Quadratic(), START, COUNT, 0.05), 400, 0.01, id="AdamW"),
        pytest.param(lambda: CentralMezo(Quadratic(), START, COUNT, 0.05), 600, 0.01, id="MeZO"),
    ],
)
def test_rival__many_steps__gets_to_the_known_minimum(make: Callable[[], Rival], steps: int, tolerance: float) -> None:
    rival = played(make(), steps)
    assert torch.allclose(rival.mean(), CENTRES.mean(dim=0), atol=tolerance)
