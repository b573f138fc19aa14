"""A run of some authors in lock-step: each sends the mean gradient of its rows in whole numbers, and all are summed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.one_pass.basis import CoreBasis
from benchmarks.one_pass.layers import LateLayers, PassResult
from protocol.errors import OperatorError
from sfnode.privacy import NoisySum

_MESSAGE_ROWS = 16  # of the messages that set clip and unit
_LEVEL_MAX = 127
_LEVELS_OF_RMS = 16
_CLIP = 2.0  # in medians of the calibration's norms


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How a step's messages change the core: `C -= rate / curvature * w(t) * S_t / (R_t + noise_rows)`.

    S_t: sum over all rows of the step's messages; R_t: their number; w falls linearly to zero over the run. So a step
    of few rows is short, a step of many is a Newton step along the mean gradient, and nobody has to say how many.

    Attributes:
        is_judged: nobody sees a label: an author draws one for each of its rows as the model thinks, and only learns
            whether it is right.
    """

    rate: float = 3.0
    noise_rows: int = 128
    is_judged: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """How well the run did after so many forward rows of all authors: accuracy in percent, and loss, of each state."""

    rows: int
    accuracy: list[float]
    loss: list[float]


@dataclass(frozen=True, slots=True)
class Scale:
    """What a message may hold: its largest norm, and the unit of its whole numbers. From unlabelled rows.

    ``noise``: multiplier of the noise that each author adds to the sum of its clipped rows; 0: none, and no clip.
    """

    norm_max: float
    unit: float
    noise: float = 0.0

    def means(self, gradients: Tensor) -> Tensor:
        """Return the mean over the rows of each author, fp32[A, L, r, k], of gradients [A, R, L, r, k]."""
        if not self.noise:
            return gradients.mean(1)
        noisy = [self._noisy_mean(rows) for rows in gradients.flatten(2).double().cpu().numpy()]
        return torch.from_numpy(np.stack(noisy)).to(gradients).view(len(gradients), *gradients.shape[2:])

    def _noisy_mean(self, rows: np.ndarray) -> np.ndarray:
        found = NoisySum(rows.shape[1], self.norm_max)
        for row in rows:
            found.add(row)
        return found.noisy_mean(self.noise)

    def rounded(self, messages: Tensor) -> Tensor:
        """Return fp32[A, L, r, k] as the sum sees them: clipped in norm, then whole multiples of the unit."""
        norms = messages.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
        clipped = messages * (self.norm_max / norms).clamp(max=1)
        levels: Tensor = (clipped / self.unit).round().clamp(-_LEVEL_MAX, _LEVEL_MAX)
        return levels * self.unit


def calibrated(layers: LateLayers, basis: CoreBasis, rows: Tensor, seed: int) -> Scale:
    """Measure what messages look like, with labels drawn evenly: those of the rows are not looked at."""
    drawn = torch.randint(len(layers.embedding), (len(rows),), generator=torch.Generator().manual_seed(seed))
    gradients = basis.gradients(layers.run(rows), drawn.to(layers.device))
    messages = gradients.view(-1, _MESSAGE_ROWS, *gradients.shape[1:]).mean(1)
    norm = float(messages.flatten(1).norm(dim=1).median())
    return Scale(_CLIP * norm, float(messages.pow(2).mean().sqrt()) / _LEVELS_OF_RMS)


def train(
    layers: LateLayers,
    test: LateLayers,
    basis: CoreBasis,
    scale: Scale,
    shards: Sequence[np.ndarray],
    *,
    rounds: int,
    seed: int,
    rows: int = 16,
    rule: Rule | None = None,
    alone: bool = False,
    looks: Sequence[int] = (),
) -> list[Reading]:
    """Let one author for each shard send ``rows`` a round, and look after the rounds in ``looks`` and at the end.

    ``alone``: each author trains a model of its own by the same rule, and hears of nobody.
    """
    rule, chance, authors = rule or Rule(), np.random.default_rng(seed), len(shards)
    waiting = [np.zeros(0, dtype=np.int64)] * authors
    who = torch.arange(authors).repeat_interleave(rows)
    C, found = basis.zero(authors if alone else 1), []
    for turn in range(rounds):
        for author, shard in enumerate(shards):
            while len(waiting[author]) < rows:
                waiting[author] = np.concatenate([waiting[author], chance.permutation(shard)])
        chosen = torch.from_numpy(np.concatenate([queue[:rows] for queue in waiting]))
        waiting = [queue[rows:] for queue in waiting]
        passed = layers.run(chosen, basis.term(C, who if alone else torch.zeros_like(who)))
        if rule.is_judged:
            gradients = _judged_gradients(basis, passed, layers.labels[chosen], chance, rows)
        else:
            gradients = basis.gradients(passed, layers.labels[chosen])
        messages = scale.rounded(scale.means(gradients.view(authors, rows, *gradients.shape[1:])))
        sums = rows * (messages if alone else messages.sum(0, keepdim=True))
        step_rows = rows if alone else authors * rows
        weight = rule.rate / basis.curvature * (1 - turn / rounds)
        C = C - weight * sums / (step_rows + rule.noise_rows)
        if turn + 1 in looks or turn + 1 == rounds:
            found.append(look(test, basis, C, (turn + 1) * authors * rows))
    return found


def _judged_gradients(
    basis: CoreBasis, passed: PassResult, labels: Tensor, chance: np.random.Generator, rows: int
) -> Tensor:
    """Return what rewards say of each row, [B, L, r, k]: 1 for a drawn label that is right, less the author's others.

    REINFORCE: the gradient of the loss of the drawn label, times by how much it was better than the author's others.
    """
    likely = passed.logits.softmax(-1)
    draws = torch.from_numpy(chance.random((len(labels), 1))).to(likely)
    drawn = (likely.cumsum(-1) < draws).sum(-1).clamp(max=likely.shape[1] - 1)
    right = (drawn == labels).float().view(-1, rows)
    better = (right - right.mean(1, keepdim=True)) * rows / (rows - 1)
    return basis.gradients(passed, drawn) * better.view(-1, 1, 1, 1)


def look(test: LateLayers, basis: CoreBasis, C: Tensor, rows: int) -> Reading:
    """Measure the states ``C`` on all rows of ``test``, after ``rows`` forward rows of all authors."""
    every = torch.arange(len(test.labels))
    accuracy, loss = [], []
    for core in C:
        logits = test.run(every, basis.term(core[None], torch.zeros_like(every))).logits
        accuracy.append(100 * float((logits.argmax(-1) == test.labels).float().mean()))
        loss.append(float(cross_entropy(logits, test.labels)))
    return Reading(rows, accuracy, loss)


def even_shards(pool: np.ndarray, authors: int) -> list[np.ndarray]:
    """Give each author the whole pool: all draw from one source."""
    return [pool] * authors


def private_shards(
    labels: np.ndarray, pool: np.ndarray, chance: np.random.Generator, *, members: int, rows: int, skew: float
) -> list[np.ndarray]:
    """Give each member rows of its own, a share ``skew`` of them of one label, as far as there are such rows.

    OperatorError: there are not so many.
    """
    if members * rows > len(pool):
        raise OperatorError(f"{members} members with {rows} rows each: there are {len(pool)} rows to give")
    words = int(labels.max()) + 1
    left = [list(chance.permutation(pool[labels[pool] == word])) for word in range(words)]
    shards = []
    for member in range(members):
        wanted = np.where(chance.random(rows) < skew, member % words, chance.integers(words, size=rows))
        taken = []
        for word in wanted.tolist():
            source = left[word] or max(left, key=len)
            taken.append(source.pop())
        shards.append(np.array(taken))
    return shards
