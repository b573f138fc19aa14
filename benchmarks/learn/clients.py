"""The network's own method: real estimates, real signed envelopes, the real sum of integers. Only the wire is missing.

Any number of clients, each with its own key, seeds and therefore examples and directions, makes its estimate of a step
at the same state; then all messages of the step are added, as nodes do that keep in step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from transformers import PreTrainedModel

from benchmarks.learn.plain import Measured
from benchmarks.learn.problems import Task
from benchmarks.learn.spaces import bases_of, calibrated, tensors_of
from benchmarks.learn.trials import NetworkTrial
from benchmarks.measures import say
from benchmarks.sample_runs import signer
from protocol.crypto import hashing
from protocol.errors import NumericError
from protocol.ledger import Envelope, EnvelopeCodec
from protocol.run import Method, ScalarKind
from protocol.state import Coefficients
from protocol.subspace import Bases, BasisContent, Published
from sfnode.training.calibration import renewal_of
from sfnode.training.estimator import Estimator
from sfnode.training.model import fold_weights
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import TaskData

_SEEDS_BETWEEN = 1_000  # author numbers of one seed: more than clients
_RENEWALS_APART = 3  # seeds of calibrations: after those of all seeds that are reported


class Clients:
    """All clients of a run, on one model."""

    def __init__(
        self, recipe: NetworkTrial, task: Task, data: TaskData, model: PreTrainedModel, *, rate: float | None, seed: int
    ):
        shared = SharedModel(model)
        tensors = tensors_of(recipe, shared)
        found = calibrated(recipe, data, shared, tensors, seed)
        self._bases = bases_of(recipe, task, tensors, found, rate)
        self.manifest = self._bases.manifest
        self.rows = 0 if found is None else found.rows
        self._recipe, self._seed, self._shared, self._data = recipe, seed, shared, data
        self._renewals: dict[int, Published] = {}
        self._session = Estimator(shared, self._bases, data)
        self._codec = EnvelopeCodec(self.manifest)
        self._coefficients = Coefficients(self.manifest)

    def train(self) -> Iterator[int]:
        """Yields the forward rows spent so far, first those before the run, then after every step."""
        yield self.rows
        for step in range(self._recipe.steps):
            if self._recipe.is_renewed and step and step % self._recipe.epoch_steps == 0:
                self._renew(step // self._recipe.epoch_steps)
            authors = [self._seed * _SEEDS_BETWEEN + client for client in range(self._recipe.clients)]
            messages = [
                message
                for number, author in enumerate(authors)
                if (message := self._message(author, step, is_cheat=number < self._recipe.cheats))
            ]
            self._coefficients.add(messages)
            epoch = step // self.manifest.method.epoch_steps
            self._session.set_coefficients(epoch, self._coefficients.flat(epoch))
            yield self.rows

    def _renew(self, epoch: int) -> None:
        """The owner publishes a basis and a start from ``epoch`` on: other examples, the weights that the run has
        reached."""
        recipe, shared, manifest = self._recipe, self._shared, self.manifest
        held = {each: self._coefficients.flat(each) for each in self._coefficients.epochs()}
        base = {name: weight.clone() for name, weight in shared.switch.base.items()}
        for name, weight in fold_weights(self._bases, held, base, epoch - 1).items():
            shared.switch.base[name].copy_(weight)
        found = calibrated(recipe, self._data, shared, manifest.tensors, self._seed + epoch * _RENEWALS_APART)
        for name, weight in base.items():
            shared.switch.base[name].copy_(weight)
        assert found is not None, "a random basis is drawn anew in every epoch"
        content = renewal_of(manifest, found)
        self._renewals[epoch] = Published(sha256=f"{epoch:064x}", bases=content.bases, start=content.start)
        self.rows += found.rows
        start = self._bases.starts(0).get(manifest.method.basis_sha256)
        first = tuple(self._bases.of(0, index) for index in range(len(found.bases)))
        self._bases = Bases(manifest, BasisContent(bases=first, start=start), self._renewals)
        self._session = Estimator(shared, self._bases, self._data)
        for each, flat in held.items():
            self._session.set_coefficients(each, flat)

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

    Normalised ones have their whole energy already.
    """
    if method.scalar is ScalarKind.NORMALISED:
        return tuple(-each for each in q)
    return tuple(-method.clip if each > 0 else method.clip for each in q)
