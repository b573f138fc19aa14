"""The network's own method: real estimates, real signed envelopes, the real sum of integers. Only the wire is missing.

Any number of clients, each with its own key, seeds and therefore examples and directions, makes its estimate of a step
at the same state; then all messages of the step are added, as nodes do that keep in step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from transformers import PreTrainedModel

from benchmarks.learn.plain import Measured
from benchmarks.learn.problems import Task
from benchmarks.learn.spaces import space_of
from benchmarks.learn.trials import NetworkTrial
from benchmarks.measures import say
from benchmarks.sample_runs import signer
from protocol.crypto import hashing
from protocol.errors import NumericError
from protocol.ledger import Envelope, EnvelopeCodec
from protocol.run import Method, ScalarKind, TaskSpec
from protocol.state import CoefficientLayout, Coefficients
from sfnode.training.dense_estimate import dense_terms
from sfnode.training.estimator import Estimator
from sfnode.training.model import MatrixTerm
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import TaskData

_SEEDS_BETWEEN = 1_000  # author numbers of one seed: more than clients


class Clients:
    """All clients of a run, on one model."""

    def __init__(
        self,
        recipe: NetworkTrial,
        task: Task | TaskSpec,
        data: TaskData,
        model: PreTrainedModel,
        *,
        rate: float | None,
        seed: int,
    ):
        self.shared = SharedModel(model)
        space = space_of(recipe, task, data, self.shared, rate=rate, seed=seed)
        self._bases = space.bases
        self.manifest = space.bases.manifest
        self.rows = space.rows
        self._recipe, self._seed = recipe, seed
        self._session = Estimator(self.shared, space.bases, data)
        self._codec = EnvelopeCodec(self.manifest)
        self._coefficients = Coefficients(self.manifest)

    def train(self) -> Iterator[int]:
        """Yields the forward rows spent so far, first those before the run, then after every step."""
        yield self.rows
        for step in range(self._recipe.steps):
            authors = [self._seed * _SEEDS_BETWEEN + client for client in range(self._recipe.clients)]
            messages = [
                message
                for number, author in enumerate(authors)
                if (message := self._message(author, step, is_cheat=number < self._recipe.cheats))
            ]
            self._coefficients.add(messages)
            self._session.show(self._coefficients)
            yield self.rows

    def terms(self, steps: int) -> dict[str, MatrixTerm]:
        """What a dense core adds to the model's layers after ``steps`` steps."""
        core = np.zeros(CoefficientLayout(self.manifest).size, dtype=np.int64)
        for step in range(steps):
            core += self._coefficients.core(step)
        return dense_terms(self.shared, self._bases, core)

    def measure(self, rows: int) -> Measured:
        """Accuracy and loss on the first ``rows`` evaluation examples."""
        found = self._session.evaluate(rows)
        return Measured(accuracy=found.accuracy, loss=found.loss)

    def _message(self, author: int, step: int, *, is_cheat: bool) -> Envelope | None:
        """What a receiver makes of the author's signed record; None where the author has to skip the step."""
        key = signer(author)
        self.rows += self._recipe.rows_each_step // self._recipe.clients
        try:
            estimate = self._session.estimate(hashing.seed_of(self.manifest.run_id, key.author, step), step)
        except NumericError as error:
            say(f"  client {author} skips step {step}: {error}")
            return None
        q = opposite(self.manifest.method, estimate.scalars) if is_cheat else estimate.scalars
        return self._codec.decode_untrusted(self._codec.seal(key, step, q).record)


def opposite(method: Method, q: Sequence[int]) -> tuple[int, ...]:
    """What sets a run back most: the other way along every direction, raw scalars at the clip.

    Normalised ones have their whole energy already. A dense message gets all that it may have, and claims all rows.
    """
    if method.is_dense:
        turned = -np.array(q[1:], dtype=np.float64)
        longest = math.sqrt(method.energy_max / max(1.0, float(turned @ turned)))
        for share in range(100, 0, -1):  # rounding adds to it
            numbers = np.clip(np.rint(share / 100 * longest * turned), -method.clip, method.clip).astype(np.int64)
            if int(numbers @ numbers) <= method.energy_max:
                break
        return (method.directions, *numbers.tolist())
    if method.scalar is ScalarKind.NORMALISED:
        return tuple(-each for each in q)
    return tuple(-method.clip if each > 0 else method.clip for each in q)
