"""The network's own method: real estimates, real signed envelopes, the real sum of integers. Only the wire is missing.

Any number of clients, each with its own key, seeds and therefore examples and directions, makes its estimate of a step
at the same state; then all messages of the step are added, as nodes do that keep in step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from transformers import PreTrainedModel

from benchmarks.learn.plain import Measured
from benchmarks.learn.problems import Task, task_spec
from benchmarks.measures import say
from benchmarks.sample_runs import OWNER, signer
from protocol.errors import NumericError
from protocol.ledger import Envelope, EnvelopeCodec
from protocol.run import (
    CoreKind,
    Manifest,
    Method,
    Objective,
    ScalarKind,
    Schedule,
    ScheduleKind,
    TensorSpec,
    no_model,
)
from protocol.state import Coefficients
from protocol.subspace import Bases, Basis, Published, decode_basis_untrusted, encode_basis, seed_of
from sfnode.run import MethodOptions, RunDraft, build_manifest, method_of
from sfnode.storage import UNIT_EXP, BasisSpec
from sfnode.training.calibration import basis_of
from sfnode.training.estimator import Estimator
from sfnode.training.model import TensorGroup, fold_weights, trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import TaskData
from sfnode.worker_protocol import CalibrationOptions, Source

_BACKWARD_ROWS = 2  # a backward pass costs about two forward passes
_SEEDS_BETWEEN = 1_000  # author numbers of one seed: more than clients


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTrial:
    """A run of the network.

    Attributes:
        steps: how many, which is also the length of a linear schedule; tune_steps: of each trial of a learning rate.
        rates: learning rates to choose from (`sfnode init --learning-rate`), each for every message.
        rows: examples a step and client, shared by the directions (`Method.shares`).
        basis: "random", or the `calibration.Source` of a published one, made from ``calibration_rows``
            training examples, others for every seed.
        is_renewed: the owner makes another one at the start of every later epoch, at the weights as they are then.
        trainable: groups of tensors, comma-separated.
        cheats: so many of the clients send the opposite of what they measured, as large as a message may be.
        others: as in the manifest.
    """

    steps: int
    tune_steps: int
    rates: tuple[float, ...]
    rows: int = 16
    rank: int = 16
    core: str = "rademacher"
    scalar: str = "normalised"
    directions: int = 8
    sides: int = 2
    shares: int = 1
    epoch_steps: int = 1_024
    schedule: str = "linear"
    epsilon_exp: int = -10
    basis: str = "random"
    calibration_rows: int = 128
    is_renewed: bool = False
    trainable: str = "linear"
    objective: str = "loss"
    clients: int = 1
    cheats: int = 0

    @property
    def rows_each_step(self) -> int:
        """Forward rows of all clients: every direction's share on one or both sides; one-sided, the shared pass too."""
        perturbed = self.rows * self.shares * self.sides
        return self.clients * (perturbed if self.sides == 2 else perturbed + self.rows)

    @property
    def rows_of_basis(self) -> int:
        """What the owner spends on one basis, in forward rows."""
        if self.basis == "random":
            return 0
        return self.calibration_rows * (1 + (_BACKWARD_ROWS if self.basis == Source.GRADIENT else 0))


class Clients:
    """All clients of a run, on one model."""

    def __init__(
        self, recipe: NetworkTrial, task: Task, data: TaskData, model: PreTrainedModel, *, rate: float, seed: int
    ):
        shared = SharedModel(model)
        tensors = trainable_tensors(model, [TensorGroup(name) for name in recipe.trainable.split(",")])
        published = _published(recipe, data, shared, tensors, seed)
        self._bases = _bases(recipe, task, tensors, published, rate)
        self.manifest = self._bases.manifest
        self.rows = recipe.rows_of_basis
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
        """The owner publishes a basis from ``epoch`` on: other examples, the weights that the run has reached."""
        recipe, shared, manifest = self._recipe, self._shared, self.manifest
        held = {each: self._coefficients.flat(each) for each in self._coefficients.epochs()}
        base = {name: weight.clone() for name, weight in shared.switch.base.items()}
        for name, weight in fold_weights(self._bases, held, base).items():
            shared.switch.base[name].copy_(weight)
        found = _published(recipe, self._data, shared, manifest.tensors, self._seed + epoch * _SEEDS_BETWEEN)
        for name, weight in base.items():
            shared.switch.base[name].copy_(weight)
        assert found is not None, "a random basis is drawn anew in every epoch"
        self._renewals[epoch] = Published(sha256=f"{epoch:064x}", bases=found)
        self.rows += recipe.rows_of_basis
        self._bases = Bases(manifest, [self._bases.of(0, index) for index in range(len(found))], self._renewals)
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
            estimate = self._session.estimate(seed_of(self.manifest.run_id, key.author, step), step)
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


def _bases(
    recipe: NetworkTrial, task: Task, tensors: Sequence[TensorSpec], published: Sequence[Basis] | None, rate: float
) -> Bases:
    options = MethodOptions(
        rank=recipe.rank,
        core=CoreKind(recipe.core),
        scalar=ScalarKind(recipe.scalar),
        directions=recipe.directions,
        sides=recipe.sides,
        shares=recipe.shares,
        epoch_steps=recipe.epoch_steps,
        learning_rate=rate,
        schedule=ScheduleKind(recipe.schedule),
        epsilon_exp=recipe.epsilon_exp,
    )
    if published is None:
        return Bases(_manifest(recipe, task, tensors, method_of(options)))
    file = encode_basis(recipe.rank, published)
    sides = [side for each in published for side in (each.u, each.v) if side is not None]
    basis = BasisSpec(
        rank=recipe.rank,
        sha256=hashlib.sha256(file).hexdigest(),
        unit_exp=UNIT_EXP,
        entry_max=max(int(np.abs(side).max()) for side in sides),
    )
    manifest = _manifest(recipe, task, tensors, method_of(options, basis))
    return Bases(manifest, decode_basis_untrusted(manifest, file))


def _published(
    recipe: NetworkTrial, data: TaskData, shared: SharedModel, tensors: Sequence[TensorSpec], seed: int
) -> tuple[Basis, ...] | None:
    """The basis that the owner makes before the run; None for a random one."""
    if recipe.basis == "random":
        return None
    first = seed * recipe.calibration_rows % len(data.examples)
    examples = data.examples[first : first + recipe.calibration_rows]
    options = CalibrationOptions(data="", source=Source(recipe.basis), examples=recipe.calibration_rows)
    return basis_of(shared, tensors, replace(data, examples=examples), options, recipe.rank).bases


def _manifest(
    recipe: NetworkTrial, task: Task, tensors: Sequence[TensorSpec], method: tuple[Method, Schedule]
) -> Manifest:
    draft = RunDraft(
        name="learn",
        owner=OWNER.author,
        model=no_model("local:learn"),  # nothing is loaded by this manifest
        tensors=tuple(tensors),
        task=task_spec(task, rows=recipe.rows, objective=Objective(recipe.objective)),
        method=method[0],
        schedule=method[1],
        steps=recipe.steps,
    )
    return build_manifest(draft)
