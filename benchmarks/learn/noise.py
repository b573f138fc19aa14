"""How noisy one example's gradient is, what decides how many examples and directions a step needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from benchmarks.learn.plain import mean_loss
from benchmarks.learn.problems import Folders, ModelChoice, Task, load, read
from sfnode.training.model import trainable_tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Ratios E |grad l_i|^2 / |grad L|^2 over single examples i, with L the mean loss: 1 without any noise.

    The square of the examples' mean gradient holds 1 / n of the noise, which is taken off again. With few examples
    and much noise nothing is left: the ratio is infinite.

    Attributes:
        all: over all parameters.
        linear: over the linear layers' weights, which is what a run trains by default.
    """

    all: float
    linear: float


def measure_noise(folders: Folders, choice: ModelChoice, task: Task, examples: int) -> Noise:
    """By back-propagation of one example after the other."""
    model, data = load(folders, choice), read(folders, choice, task, is_test=False)
    linear = {tensor.name for tensor in trainable_tensors(model)}
    parameters = dict(model.requires_grad_(True).named_parameters())
    sums = {name: torch.zeros_like(parameter, dtype=torch.float32) for name, parameter in parameters.items()}
    squares = dict.fromkeys(parameters, 0.0)
    chosen = data.examples[:examples]
    for example in chosen:
        gradients = torch.autograd.grad(mean_loss(model, [example], data), list(parameters.values()))
        for name, gradient in zip(parameters, gradients, strict=True):
            sums[name] += gradient
            squares[name] += float(gradient.float().square().sum())
    of_single = {name: square / len(chosen) for name, square in squares.items()}
    of_mean = {name: float((total / len(chosen)).square().sum()) for name, total in sums.items()}
    names = list(parameters)
    return Noise(
        all=_ratio(of_single, of_mean, names, len(chosen)),
        linear=_ratio(of_single, of_mean, [name for name in names if name in linear], len(chosen)),
    )


def _ratio(of_single: dict[str, float], of_mean: dict[str, float], names: Sequence[str], count: int) -> float:
    single, mean = sum(of_single[name] for name in names), sum(of_mean[name] for name in names)
    signal = (count * mean - single) / (count - 1)
    return single / signal if signal > 0 else float("inf")
