"""The basis of the core, from forward passes over unlabelled rows, and what it says about the step.

`J`: how the residual stream's end moves the logits of the label words. `U`: one column for each contrast of the words.
`V_l`: the leading directions of a slot's inputs, each scaled to variance one. With columns of U of length sqrt(K) / s,
s the singular values of J less its mean, each contrast has curvature one at even predictions. So the largest eigenvalue
of all slots' inputs in V together is the curvature there, and 1 / that the rate of a Newton step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from benchmarks.one_pass.layers import LateLayers, PassResult, Term


@dataclass(frozen=True, slots=True)
class CoreBasis:
    """Directions of the core.

    Attributes:
        U: fp32[h, r], r = K - 1 contrasts of the K label words.
        V: per slot fp32[d_l, k].
        contrasts: J less its mean, times U: fp32[K, r].
        curvature: the loss's largest second derivative along a direction of the core, at even predictions.
    """

    U: Tensor
    V: tuple[Tensor, ...]
    contrasts: Tensor
    curvature: float

    def zero(self, states: int = 1) -> Tensor:
        """Return the cores of ``states`` models that nothing has moved: fp32[G, L, r, k]."""
        return torch.zeros(states, len(self.V), self.U.shape[1], self.V[0].shape[1], device=self.U.device)

    def term(self, C: Tensor, group: Tensor) -> Term:
        """Return what the cores ``C`` add to rows of these groups."""
        return Term(U=self.U, V=self.V, C=C, group=group)

    def gradients(self, passed: PassResult, labels: Tensor) -> Tensor:
        """Return the gradient of each row's loss by its core along the direct path, in closed form: [B, L, r, k]."""
        residuals = passed.logits.softmax(-1) - one_hot(labels, passed.logits.shape[1]).float()
        inputs = torch.stack([x @ v for x, v in zip(passed.inputs, self.V, strict=True)], 1)
        return torch.einsum("br,blk->blrk", residuals @ self.contrasts, inputs)


def make_basis(layers: LateLayers, rows: Tensor, *, rank: int = 64, ridge: float = 0.003) -> CoreBasis:
    """Make the basis from unlabelled ``rows``: one forward pass each."""
    passed = layers.run(rows)
    J = layers.embedding * layers.norm / passed.rms.mean()
    centred = J - J.mean(0)
    words = len(J)
    _, lengths, directions = torch.linalg.svd(centred, full_matrices=False)
    U = directions[: words - 1].T * (math.sqrt(words) / lengths[: words - 1])
    V = tuple(_leading(inputs, rank, ridge) for inputs in passed.inputs)
    together = torch.cat([x @ v for x, v in zip(passed.inputs, V, strict=True)], 1).double()
    curvature = float(torch.linalg.eigvalsh(together.T @ together / len(rows))[-1])
    return CoreBasis(U, V, centred @ U, curvature)


def _leading(inputs: Tensor, rank: int, ridge: float) -> Tensor:
    """Return the leading eigenvectors of the uncentred second moment, each over sqrt(eigenvalue + ridge): [d, k].

    The first is the mean and carries the prior; the ridge is a share of the sum of the others.
    """
    _, lengths, directions = torch.linalg.svd(inputs.double() / math.sqrt(len(inputs)), full_matrices=False)
    values = lengths[:rank] ** 2
    scaled: Tensor = directions[:rank].T / (values + ridge * values[1:].sum()).sqrt()
    return scaled.float()
