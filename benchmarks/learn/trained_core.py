"""The numbers that a run with a published basis learns, seen by back-propagation: how far they can go, and how many of
them the gradient needs. So one sees whether the space or the noise of the estimates is the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from benchmarks.learn.designs import DESIGNS, captured
from benchmarks.learn.plain import Measured, batches, chunks
from benchmarks.learn.problems import Folders, ModelChoice, Task, load, read
from benchmarks.learn.spaces import bases_of, calibrated, suggested_rate, tensors_of
from benchmarks.learn.trials import CoreTrial
from sfnode.training.model import MatrixTerm, Term, VectorTerm, attach, fold_weights
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, Scores, TaskData, batch_of

_CHUNK_ROWS = 32  # of an evaluation
_GRADIENT_ROWS = 16  # back-propagated at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """How many numbers a run learns.

    Attributes:
        numbers: those on which the loss depends at all.
        effective: participation ratio of the gradient g in them, (sum g^2)^2 / sum g^4: all if they count alike, 1 if
            only one counts.
        captured: by the name of each of `DESIGNS`, the share of the gradient's gain that one step finds.
    """

    numbers: int
    effective: float
    captured: dict[str, float]


class TrainedCore:
    """U C V^T on every tensor, with C in fp32 and trained by Adam; the basis is that of a run."""

    def __init__(self, recipe: CoreTrial, task: Task, data: TaskData, model: PreTrainedModel, *, seed: int) -> None:
        self._recipe, self._data, self._seed = recipe, data, seed
        self._shared = SharedModel(model)
        tensors = tensors_of(recipe.network, self._shared)
        found = calibrated(recipe.network, data, self._shared, tensors, seed)
        self._suggested = suggested_rate(found)
        self._rows_of_basis = 0 if found is None else found.rows
        bases = bases_of(recipe.network, task, tensors, found, None)
        for name, weight in fold_weights(bases, {}, self._shared.switch.base).items():  # the start
            self._shared.switch.base[name].copy_(weight)
        sides = self._shared.bases(bases, 0)
        self._sides = {tensor.name: each for tensor, each in zip(tensors, sides, strict=True)}
        attach(model, tensors, self._shared.pass_context)
        self._cores = {name: self._zeros(name) for name in self._sides}

    def train(self, rate: float | None) -> Iterator[int]:
        """Yields the forward rows spent so far, first those of the basis, then after every step."""
        rows = self._rows_of_basis
        optimiser = torch.optim.Adam(self._cores.values(), lr=self._suggested if rate is None else rate)
        yield rows
        for batch in batches(self._data, self._recipe.rows, self._seed):
            optimiser.zero_grad()
            torch.autograd.backward(self._scores(batch).loss.mean())
            optimiser.step()
            rows += len(batch)
            yield rows

    @torch.no_grad()
    def measure(self, rows: int) -> Measured:
        """Accuracy and loss on the first ``rows`` evaluation examples."""
        examples = self._data.evaluation_examples[:rows]
        found = [self._scores(chunk) for chunk in chunks(examples, _CHUNK_ROWS)]
        return Measured(
            accuracy=float(torch.cat([each.right for each in found]).double().mean()),
            loss=float(torch.cat([each.loss for each in found]).double().mean()),
        )

    def gradient(self, examples: Sequence[Example]) -> Tensor:
        """Of the mean loss over ``examples`` in all numbers of all cores, fp32[numbers]."""
        for chunk in chunks(examples, _GRADIENT_ROWS):
            torch.autograd.backward(self._scores(chunk).loss.sum() / len(examples))
        return torch.cat([core.grad.reshape(-1) for core in self._cores.values() if core.grad is not None])

    def _scores(self, examples: Sequence[Example]) -> Scores:
        rows = batch_of(self._data, examples, 1, self._shared.device)
        terms = {name: self._term(name) for name in self._sides}
        with self._shared.pass_context.carrying(terms, 1, rows.tokens.numel()):
            return self._shared.scores(rows, self._data.label_tokens)

    def _zeros(self, name: str) -> Tensor:
        u, v = self._sides[name]
        shape = (1, u.shape[1]) if v is None else (1, v.shape[1], v.shape[1])  # one group of rows
        return torch.zeros(shape, dtype=self._shared.loss_dtype, device=self._shared.device, requires_grad=True)

    def _term(self, name: str) -> Term:
        (u, v), core = self._sides[name], self._cores[name]
        if v is None:
            return VectorTerm(delta=core @ u.to(core.dtype).t())
        return MatrixTerm(u=u[:-1].t(), v=v, m=core)  # without `up`: layers write to it, which has no gradient


def measure_dimension(folders: Folders, model: ModelChoice, task: Task, recipe: CoreTrial, examples: int) -> Dimension:
    """At the start, from the first ``examples`` training examples."""
    data = read(folders, model, task, is_test=False)
    core = TrainedCore(recipe, task, data, load(folders, model), seed=0)
    single_ND = torch.stack([core.gradient([example]) for example in data.examples[:examples]])
    single_ND = single_ND[:, single_ND.any(dim=0)]
    return Dimension(
        numbers=single_ND.shape[1],
        effective=participation(single_ND.mean(dim=0)),
        captured={name: round(captured(single_ND, design), 4) for name, design in DESIGNS.items()},
    )


def participation(gradient: Tensor) -> float:
    """(sum g^2)^2 / sum g^4 of a vector; 0 of zeros."""
    squares = gradient.double().square()
    fourth = float(squares.square().sum())
    return float(squares.sum()) ** 2 / fourth if fourth else 0.0
