"""Machines of unequal speed in one run, in virtual time: what each policy for slow ones comes to.

Real estimates on real data, signed envelopes, real sums, and the node's own step clock. A machine is as fast as it is
said to be, and messages take no time.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from benchmarks.learn.problems import SMALL, TASKS, Folders, Task, load, read
from benchmarks.learn.spaces import space_of
from benchmarks.learn.trials import NetworkTrial
from benchmarks.measures import say
from benchmarks.sample_runs import signer
from protocol.crypto import Author, hashing
from protocol.errors import NumericError
from protocol.ledger import Envelope, EnvelopeCodec
from protocol.node import StepClock
from protocol.state import Coefficients
from sfnode.training.estimator import Estimator
from sfnode.training.shared_model import SharedModel

LOOKS: Final = 8
TASK: Final = replace(TASKS["sst2"], test_rows=400)
_AUTHORS_APART: Final = 1_000  # author numbers of one seed
_JITTER: Final = 0.1  # a round takes so much longer or shorter, at most


class Policy(StrEnum):
    """What becomes of slow machines."""

    WAIT = "all wait"
    SKIP = "slow ones skip"
    FIT = "as many rows as fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Machines by what a round of all rows takes them, in virtual ms; the middle ones' is the unit of time."""

    name: str
    round_ms: Mapping[int, int]  # -> how many

    @property
    def unit_ms(self) -> int:
        """Of the machine in the middle."""
        return sorted(self.each)[len(self.each) // 2 - 1]

    @property
    def each(self) -> list[int]:
        """One number a machine, the fastest first."""
        return [round_ms for round_ms, count in sorted(self.round_ms.items()) for _ in range(count)]


FLEETS: Final = (Fleet(name="1 : 10 : 100", round_ms={1_000: 2, 10_000: 3, 100_000: 3}),)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedTrial:
    """One run of so many of the middle machines' rounds; the same trial gives the same curve.

    ``rate``: in rates that `sfnode init` suggests.
    """

    fleet: Fleet
    policy: Policy
    rate: float
    seed: int
    rounds: int
    is_test: bool
    task: Task = TASK
    recipe: NetworkTrial = field(
        default_factory=lambda: NetworkTrial(steps=4_096, tune_steps=0, rates=(), schedule="constant", core="dense")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedCurve:
    """What was seen.

    Attributes:
        seconds, accuracy, loss: by look; seconds are virtual.
        rows: that the machines of each speed have measured together, by what a round takes them in ms; directions,
            where the run draws them.
        steps: how far the run has come.
    """

    seconds: list[float]
    accuracy: list[float]
    loss: list[float]
    rows: dict[int, int]
    steps: int


@dataclass(slots=True)
class _Machine:
    author: Author
    round_ms: int
    clock: StepClock
    measuring: int = 0  # rows of the round under way


class Race:
    """The machines of one trial on one model: they all hold the same, since messages take no time."""

    def __init__(self, trial: SpeedTrial, folders: Folders) -> None:
        seed = trial.seed
        data = read(folders, SMALL, trial.task, is_test=trial.is_test)
        shared = SharedModel(load(folders, SMALL))
        recipe = replace(trial.recipe, rate_factor=trial.rate)
        bases = space_of(recipe, trial.task, data, shared, rate=None, seed=seed).bases
        manifest = self._manifest = bases.manifest
        self._session = Estimator(shared, bases, data)
        self._codec, self._coefficients = EnvelopeCodec(manifest), Coefficients(manifest)
        self._keys = {key.author: key for key in map(signer, range(seed * _AUTHORS_APART, (seed + 1) * _AUTHORS_APART))}
        self._machines = [
            _Machine(author, round_ms, StepClock(manifest, author))
            for author, round_ms in zip(self._keys, trial.fleet.each, strict=False)
        ]
        self._trial, self._chance = trial, random.Random(seed)
        self._highest: dict[Author, int] = {}
        self._due: list[tuple[int, int, _Machine, Envelope | None]] = []
        self._now_ms, self._started = 0, 0
        self.rows: Counter[int] = Counter()

    def play(self) -> SpeedCurve:
        """From the start to the end of the virtual time, with a look now and then; a trial of a rate has few."""
        trial = self._trial
        end_ms = trial.rounds * trial.fleet.unit_ms
        seen = []
        looks = LOOKS if trial.is_test else 1
        for look in range(looks + 1):
            self._run_until(end_ms * look // looks)
            found = self._session.evaluate(trial.task.test_rows)
            seen.append((self._now_ms / 1_000, round(found.accuracy, 4), round(found.loss, 4)))
        seconds, accuracy, loss = (list(column) for column in zip(*seen, strict=True))
        say(f"{trial.fleet.name} {trial.policy} {trial.rate:g} seed {trial.seed}: loss {loss[-1]}, {accuracy[-1]}")
        steps = max(self._highest.values(), default=-1) + 1
        return SpeedCurve(seconds=seconds, accuracy=accuracy, loss=loss, rows=dict(self.rows), steps=steps)

    def _run_until(self, end_ms: int) -> None:
        while True:
            self._start()
            rests = [self._now_ms + max(1, each.clock.rest_ms(self._now_ms)) for each in self._idle()]
            waits = self._trial.policy is not Policy.WAIT and rests
            next_ms = min([*(rests if waits else ()), *(each[0] for each in self._due[:1])])
            if next_ms > end_ms:
                self._now_ms = end_ms
                return
            self._now_ms = next_ms
            while self._due and self._due[0][0] <= next_ms:
                _, _, machine, envelope = heapq.heappop(self._due)
                self._finish(machine, envelope)

    def _idle(self) -> list[_Machine]:
        return [each for each in self._machines if not each.measuring]

    def _start(self) -> None:
        if self._trial.policy is Policy.WAIT and len(self._idle()) < len(self._machines):
            return
        for machine in self._idle():
            machine.clock.resume_after(self._highest.get(machine.author, -1))
            step = machine.clock.try_start(self._highest, self._now_ms)
            if step is not None:
                self._measure(machine, step)

    def _measure(self, machine: _Machine, step: int) -> None:
        """On the state of now; the message comes when the machine is through."""
        whole = self._manifest.method.directions
        rows = machine.clock.affordable.chosen if self._trial.policy is Policy.FIT else whole
        key, envelope = self._keys[machine.author], None
        try:
            seed = hashing.seed_of(self._manifest.run_id, machine.author, step)
            scalars = self._session.estimate(seed, step, rows).scalars
            envelope = self._codec.decode_untrusted(self._codec.seal(key, step, scalars).record)
        except NumericError as error:
            say(f"  skips step {step}: {error}")
        takes_ms = machine.round_ms * rows / whole * self._chance.uniform(1 - _JITTER, 1 + _JITTER)
        self._started += 1
        heapq.heappush(self._due, (self._now_ms + round(takes_ms), self._started, machine, envelope))
        machine.measuring = rows

    def _finish(self, machine: _Machine, envelope: Envelope | None) -> None:
        measured, machine.measuring = machine.measuring, 0
        machine.clock.step_finished(self._now_ms, is_measured=envelope is not None)
        if envelope is None:
            return
        self.rows[machine.round_ms] += measured
        self._highest[machine.author] = envelope.step
        self._coefficients.add([envelope])
        epoch = envelope.step // self._manifest.method.epoch_steps
        self._session.set_coefficients(epoch, self._coefficients.core(epoch))
        for other in self._machines:
            if other is not machine:
                other.clock.hear(machine.author, envelope.scalars, self._now_ms)
