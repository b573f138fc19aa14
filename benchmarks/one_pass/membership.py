"""A worked attack: which of some known rows went into a message?

The attacker knows the model, the basis and the run's state, as everybody does, and holds candidate rows, among them
those of the message. A message is a mean of rows' gradients, and each candidate has one for each label it might have. A
row is named if its gradient has the largest cosine with what the message still holds once the rows named before are
fitted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from benchmarks.one_pass.basis import CoreBasis
from benchmarks.one_pass.layers import LateLayers
from benchmarks.one_pass.training import Scale


@dataclass(frozen=True, slots=True)
class Named:
    """What the attack finds in messages of so many rows: the share of rows named, and of these with the right label."""

    rows: int
    messages: int
    rows_right: float
    labels_right: float


def attack(
    layers: LateLayers, basis: CoreBasis, scale: Scale, candidates: Tensor, chance: np.random.Generator, rows: int
) -> Named:
    """Attack messages of ``rows`` rows each, drawn from ``candidates``, int64[N], at the unmoved core."""
    words, passed, labels = len(layers.embedding), layers.run(candidates), layers.labels[candidates]
    of_label = [basis.gradients(passed, torch.full_like(labels, label)).flatten(1).double() for label in range(words)]
    known = torch.cat(of_label)  # candidate i with label j: row j N + i
    directions = known / known.norm(dim=1, keepdim=True)
    messages, found, right = 64, 0, 0
    for _ in range(messages):
        chosen = torch.from_numpy(chance.choice(len(candidates), rows, replace=False)).to(labels.device)
        wanted = labels[chosen] * len(candidates) + chosen
        gradients = known[wanted].float().view(1, rows, len(basis.V), *basis.zero().shape[2:])
        message = scale.rounded(scale.means(gradients)).flatten()
        named = _named(message.double(), directions, rows)
        found += len(set((named % len(candidates)).tolist()) & set(chosen.tolist()))
        right += len(set(named.tolist()) & set(wanted.tolist()))
    return Named(rows, messages, found / (rows * messages), right / max(1, found))


def _named(message: Tensor, directions: Tensor, rows: int) -> Tensor:
    """Name rows one after the other (orthogonal matching pursuit)."""
    chosen: list[int] = []
    rest = message
    for _ in range(rows):
        scores = directions @ rest
        scores[chosen] = -torch.inf
        chosen.append(int(scores.argmax()))
        picked = directions[chosen].T
        rest = message - picked @ torch.linalg.lstsq(picked, message[:, None]).solution[:, 0]
    return torch.tensor(chosen)
