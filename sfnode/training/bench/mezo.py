"""The baseline of `sfnode bench`: MeZO's in-place step, from its paper (Malladi et al., arXiv 2305.17333).

Every parameter is perturbed by + eps z, - 2 eps z and + eps z again, with z drawn anew from the seed each time, and
updated with a fourth draw. No state of a run ever comes from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def perturb(parameters: Sequence[Tensor], seed: int, scale: float) -> None:
    """Add scale * z(seed) to the parameters in place, tensor by tensor."""
    generator = torch.Generator(device=parameters[0].device).manual_seed(seed)
    for parameter in parameters:
        z = torch.empty_like(parameter).normal_(generator=generator)
        parameter.add_(z, alpha=scale)


def mezo_step(
    parameters: Sequence[Tensor], loss: Callable[[], Tensor], seed: int, epsilon: float, learning_rate: float
) -> float:
    """Take one step: two forward passes, four passes over the weights. Returns the projected gradient."""
    perturb(parameters, seed, epsilon)
    plus = float(loss())
    perturb(parameters, seed, -2 * epsilon)
    minus = float(loss())
    perturb(parameters, seed, epsilon)
    projected = (plus - minus) / (2 * epsilon)
    perturb(parameters, seed, -learning_rate * projected)
    return projected
