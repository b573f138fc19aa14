"""How much of the gradient one step of estimates finds, by how the step shares out its forward rows.

No run: single examples' gradients in the numbers of a space say what each estimate would be, to first order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

ROWS = 32  # forward rows of a step, of one author
_DRAWN_NUMBERS = 10_000_000  # of directions in all: as many steps as that makes are drawn
STEPS_MAX = 1_000
_EARLIER = 10  # steps whose estimates make a control variate


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """How a step spends its rows.

    Attributes:
        directions: how many; each is seen by ``examples`` of its own.
        examples: of each direction; both sides see the same ones.
        is_common: all directions see the same examples instead.
        is_orthogonal: the directions of a step are at right angles.
        has_variate: what earlier steps found is subtracted from every slope, and added to the sum again.
    """

    directions: int
    examples: int
    is_common: bool = False
    is_orthogonal: bool = False
    has_variate: bool = False


USUAL = Design(directions=8, examples=2)
DESIGNS: Mapping[str, Design] = {
    "8 directions, 2 examples each (the default)": USUAL,
    "1 direction, 16 examples": Design(directions=1, examples=16),
    "16 directions, 1 example each": Design(directions=16, examples=1),
    "8 directions, the same 2 examples": replace(USUAL, is_common=True),
    "15 directions of one side, the same 2 examples, their plain pass shared": Design(
        directions=15, examples=2, is_common=True
    ),
    "8 directions at right angles, 2 examples each": replace(USUAL, is_orthogonal=True),
    f"the default, less the mean of {_EARLIER} earlier steps (control variate)": replace(USUAL, has_variate=True),
    "2 authors, 16 directions, 2 examples each": replace(USUAL, directions=16),
    "2 authors, 16 directions at right angles, 2 examples each": replace(USUAL, directions=16, is_orthogonal=True),
}


def captured(gradients_ND: Tensor, design: Design, seed: int = 0, steps_max: int = STEPS_MAX) -> float:
    """|g|^2 / E |estimate|^2, 0...1: the share of what the exact gradient g gains that a step of the best length gains.

    ``gradients_ND``: of each example; g is their mean. Estimates have no bias, so the rest is noise.
    ``steps_max``: how many steps are drawn at most; more make the answer more exact.
    """
    generator = torch.Generator().manual_seed(seed)
    numbers = gradients_ND.shape[1]
    mean_D = gradients_ND.mean(dim=0)
    steps = max(8, min(steps_max, _DRAWN_NUMBERS // (numbers * design.directions)))
    total = 0.0
    for _ in range(steps):
        variate_D = torch.zeros(numbers)
        if design.has_variate:
            usual = replace(design, has_variate=False)
            estimates = [_estimate(gradients_ND, usual, variate_D, generator) for _ in range(_EARLIER)]
            variate_D = torch.stack(estimates).mean(dim=0)
        total += float(_estimate(gradients_ND, design, variate_D, generator).square().sum())
    return float(mean_D.square().sum()) / (total / steps)


def _estimate(gradients_ND: Tensor, design: Design, variate_D: Tensor, generator: torch.Generator) -> Tensor:
    examples, numbers = gradients_ND.shape
    count = design.directions
    if design.is_orthogonal:
        directions_KD = _at_right_angles(count, numbers, generator)
    else:
        directions_KD = torch.randint(0, 2, (count, numbers), generator=generator).float() * 2 - 1
    shape = (1 if design.is_common else count, design.examples)
    chosen = torch.randint(examples, shape, generator=generator)
    seen_KD = gradients_ND[chosen].mean(dim=1)
    slopes_K = ((seen_KD - variate_D) * directions_KD).sum(dim=1)
    return variate_D + slopes_K @ directions_KD / count


def _at_right_angles(directions: int, numbers: int, generator: torch.Generator) -> Tensor:
    """As long as those of random signs; where there are more of them than numbers, in groups."""
    groups: list[Tensor] = []
    left = directions
    while left:
        drawn = torch.randn(numbers, min(left, numbers), generator=generator)
        groups.append(torch.linalg.qr(drawn).Q.T * numbers**0.5)
        left -= len(groups[-1])
    return torch.cat(groups)
