"""SeedFlood with late delivery and uneven examples: real estimates, signed envelopes, real sums; no wire.

`benchmarks.learn.clients` has the network that delivers at once, to clients that draw from the same examples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from transformers import PreTrainedModel

from benchmarks.learn.curves import Job, Point, Training, play
from benchmarks.learn.plain import Measured
from benchmarks.learn.problems import Folders, Task, load, read
from benchmarks.learn.spaces import space_of
from benchmarks.learn.trials import NetworkTrial
from benchmarks.measures import say
from benchmarks.paper.worlds import dealt, delays
from benchmarks.sample_runs import signer
from protocol.crypto import hashing
from protocol.errors import NumericError
from protocol.ledger import Envelope, EnvelopeCodec
from protocol.state import Coefficients
from sfnode.training.estimator import Estimator
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import TaskData

CAUGHT_UP = 4
_SPAN = 6
_SEEDS_BETWEEN = 1_000  # author numbers of one seed: more than clients


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodTrial(NetworkTrial):
    """A run of the network in a world of its own.

    Attributes:
        graph: a name in `benchmarks.graphs.GRAPHS`.
        hops: that an update travels in a step; None: it is everywhere before the next one.
        alpha: of the Dirichlet shares of each label (`worlds.dealt`); None: all draw from the whole file.
        threshold: of raw slopes: those below it count as noise, and who has measured nothing else is silent (Gaia's
            significance filter, Hsieh et al. 2017, NSDI); 0: all is told.
        cut_off: clients, the last ones, that are alone with one another for some steps. What was measured then reaches
            the other side at their end.
        cut_steps: the first of them, and the one after the last.
        cut_weight: what counts of their updates of that time, for everybody.
        lost: share of the deliveries that get lost; the receiver finds what it lacks `CAUGHT_UP` steps later.
        away: share of the clients that are away, for `_SPAN` steps each time. Who is back has all, as after a catch-up.
    """

    graph: str = "ring"
    hops: int | None = None
    alpha: float | None = None
    threshold: float = 0.0
    cut_off: int = 0
    cut_steps: tuple[int, int] = (0, 0)
    cut_weight: float = 1.0
    lost: float = 0.0
    away: float = 0.0

    def is_cut_off(self, client: int, step: int) -> bool:
        return client >= self.clients - self.cut_off and step in range(*self.cut_steps)


class FloodedClients:
    """All clients of a run, each with the updates that have reached it by now, on one model."""

    def __init__(
        self, recipe: FloodTrial, task: Task, data: TaskData, model: PreTrainedModel, *, rate: float | None, seed: int
    ) -> None:
        shared = SharedModel(model)
        space = space_of(recipe, task, data, shared, rate=rate, seed=seed)
        self.manifest = space.bases.manifest
        self._rows = space.rows
        self._recipe, self._seed = recipe, seed
        self._sent = 0
        self._keys = [signer(seed * _SEEDS_BETWEEN + client) for client in range(recipe.clients)]
        self._sessions = [Estimator(shared, space.bases, each) for each in _shards(recipe, data, seed)]
        self._codec = EnvelopeCodec(self.manifest)
        late = None if recipe.hops is None else delays(recipe.graph, recipe.clients, recipe.hops)
        self._delays = None if late is None or late.max() == 1 else late
        self._are_alike = self._delays is None and not recipe.cut_off and not recipe.lost
        self._held = [Coefficients(self.manifest) for _ in range(1 if self._are_alike else recipe.clients)]
        self._due: dict[tuple[int, int], list[Envelope]] = defaultdict(list)  # by step and receiver

    def train(self) -> Iterator[int]:
        """Yields the forward rows spent so far, first those before the run, then after every step."""
        yield self._rows
        for step in range(self._recipe.steps):
            for client in range(self._recipe.clients):
                self._send(client, step)
            for receiver, held in enumerate(self._held):
                held.add(self._due.pop((step + 1, receiver), []))
            for client, session in enumerate(self._sessions):
                session.show(self._held[0 if self._are_alike else client])
            yield self._rows

    def measure(self, rows: int) -> Measured:
        """Accuracy and loss of client 0 on the first ``rows`` evaluation examples."""
        found = self._sessions[0].evaluate(rows)
        sent = self._sent if self._recipe.threshold else None
        return Measured(accuracy=found.accuracy, loss=found.loss, sent=sent)

    def _send(self, client: int, step: int) -> None:
        if self._drawn(client, step // _SPAN) < self._recipe.away:
            return
        key = self._keys[client]
        self._rows += self._recipe.rows_each_step // self._recipe.clients
        try:
            estimate = self._sessions[client].estimate(hashing.seed_of(self.manifest.run_id, key.author, step), step)
        except NumericError as error:
            say(f"  client {client} skips step {step}: {error}")
            return
        least = self._recipe.threshold * 2.0**-self.manifest.method.quantum_exp
        weight = self._recipe.cut_weight if self._recipe.is_cut_off(client, step) else 1
        scalars = tuple(round(q * weight) if abs(q) >= least else 0 for q in estimate.scalars)
        if least and not any(scalars):
            return
        self._sent += 1
        envelope = self._codec.decode_untrusted(self._codec.seal(key, step, scalars).record)
        for receiver in range(len(self._held)):
            self._due[self._arrival(client, receiver, step), receiver].append(envelope)

    def _drawn(self, *of: int) -> float:
        """A number from 0 to 1 for this seed, and the same again at every call."""
        return float(np.random.default_rng([self._seed, *of]).random())

    def _arrival(self, client: int, receiver: int, step: int) -> int:
        """Before which step an update of ``step`` is there."""
        usual = step + (1 if self._delays is None else int(self._delays[client, receiver]))
        if client != receiver and self._drawn(client, receiver, step) < self._recipe.lost:
            usual += CAUGHT_UP
        is_apart = self._recipe.is_cut_off(client, step) != self._recipe.is_cut_off(receiver, step)
        return max(usual, self._recipe.cut_steps[1]) if is_apart else usual


def _shards(recipe: FloodTrial, data: TaskData, seed: int) -> list[TaskData]:
    if recipe.alpha is None:
        return [data] * recipe.clients
    owned = dealt([example.label for example in data.examples], recipe.clients, recipe.alpha, seed)
    return [replace(data, examples=tuple(data.examples[place] for place in places)) for places in owned]


def play_flood(job: Job, folders: Folders) -> list[Point]:
    """The curve of a job whose recipe is a `FloodTrial`."""
    return play(job, folders, _begin)


def _begin(job: Job, folders: Folders) -> Training:
    assert isinstance(job.recipe, FloodTrial)
    data, model = read(folders, job.model, job.task, is_test=job.is_test), load(folders, job.model)
    flood = FloodedClients(job.recipe, job.task, data, model, rate=job.rate, seed=job.seed)
    return flood.train(), flood.measure
