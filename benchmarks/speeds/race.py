"""Machines of unequal speed in one run, in virtual time: what each policy for slow ones comes to.

The rows, messages and sums are those of `benchmarks.one_pass`, and the step clock is the node's own. A machine is as
fast as it is said to be, and messages take no time.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import torch
from torch import Tensor

from benchmarks.measures import say
from benchmarks.one_pass.laboratory import Laboratory
from benchmarks.one_pass.training import Reading, Rule, look
from benchmarks.sample_runs import Shape, manifest_of, signer, tiny_tensors
from protocol.crypto import Author
from protocol.node import StepClock
from protocol.run import CoreKind, Manifest

BATCH_ROWS = 16  # of a whole message, as `sfnode init` has it
LOOKS = (1 / 4, 1 / 2, 1.0)  # parts of the time
_STEPS = 4_096  # more than any policy gets to
_JITTER = 0.1  # a round takes so much longer or shorter, at most


class Policy(StrEnum):
    """What becomes of slow machines."""

    WAIT = "all wait"
    SKIP = "slow ones skip"
    FIT = "as many rows as fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Machines by the virtual ms that a row takes them: how many of each."""

    name: str
    row_ms: Mapping[int, int]

    @property
    def each(self) -> list[int]:
        """One number a machine, the fastest first."""
        return [row_ms for row_ms, count in sorted(self.row_ms.items()) for _ in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedTrial:
    """One run of so many virtual seconds; the same trial gives the same curve."""

    fleet: Fleet
    policy: Policy
    seed: int
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedCurve:
    """What was seen.

    Attributes:
        seconds, accuracy, loss: by look; seconds are virtual, accuracies in percent.
        rows: that the machines of each speed have measured together, by the ms of a row.
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
    row_ms: int
    clock: StepClock
    measuring: int = 0  # rows of the round under way


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    step: int
    total: Tensor  # over its rows: the whole numbers of the mean, times their number
    rows: int


class Race:
    """The machines of one trial on one model: they all hold the same, since messages take no time.

    Attributes:
        sums: S and R of each step: the sum over all rows of its messages, and their number.
        core: what the sums have moved.
        rows: as in the curve.
    """

    def __init__(self, trial: SpeedTrial, laboratory: Laboratory, start: Reading) -> None:
        """Make the machines; ``start``: how good the unmoved model is."""
        manifest = _manifest()
        authors = [signer(number).author for number in range(len(trial.fleet.each))]
        self._machines = [
            _Machine(author, row_ms, StepClock(manifest, author))
            for author, row_ms in zip(authors, trial.fleet.each, strict=True)
        ]
        self._trial, self._laboratory, self._last = trial, laboratory, start
        self._chance = random.Random(trial.seed)
        self._pool = _drawn(laboratory.pool, trial.seed)
        self._highest: dict[Author, int] = {}
        self._due: list[tuple[int, int, _Machine, _Message]] = []
        self._now_ms, self._started = 0, 0
        self.sums: dict[int, tuple[Tensor, int]] = {}
        self.core = laboratory.basis.zero()
        self.rows: Counter[int] = Counter()

    def play(self) -> SpeedCurve:
        """Run from the start to the end of the virtual time, with a look now and then."""
        trial, seen = self._trial, [(0.0, self._last)]
        for part in LOOKS:
            self._run_until(round(1_000 * trial.seconds * part))
            seen.append((self._now_ms / 1_000, self._look()))
        say(f"{trial.fleet.name} {trial.policy} seed {trial.seed}: {self._last}")
        return SpeedCurve(
            seconds=[seconds for seconds, _ in seen],
            accuracy=[round(each.accuracy[0], 2) for _, each in seen],
            loss=[round(each.loss[0], 4) for _, each in seen],
            rows=dict(self.rows),
            steps=max(self._highest.values(), default=-1) + 1,
        )

    def _look(self) -> Reading:
        laboratory, rows = self._laboratory, self.rows.total()
        if rows != self._last.rows:
            self._last = look(laboratory.test, laboratory.basis, self.core, rows)
        return self._last

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
                _, _, machine, message = heapq.heappop(self._due)
                self._finish(machine, message)

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
        """Measure on the state of now; the message comes when the machine is through."""
        laboratory, basis = self._laboratory, self._laboratory.basis
        machine.measuring = machine.clock.affordable.chosen if self._trial.policy is Policy.FIT else BATCH_ROWS
        chosen = torch.tensor([next(self._pool) for _ in range(machine.measuring)])
        passed = laboratory.layers.run(chosen, basis.term(self.core, torch.zeros_like(chosen)))
        gradients = basis.gradients(passed, laboratory.layers.labels[chosen])
        total = machine.measuring * laboratory.scale.rounded(gradients.mean(0, keepdim=True))
        takes_ms = machine.row_ms * machine.measuring * self._chance.uniform(1 - _JITTER, 1 + _JITTER)
        self._started += 1
        message = _Message(step=step, total=total, rows=machine.measuring)
        heapq.heappush(self._due, (self._now_ms + round(takes_ms), self._started, machine, message))

    def _finish(self, machine: _Machine, message: _Message) -> None:
        machine.measuring = 0
        machine.clock.step_finished(self._now_ms, is_measured=True)
        self.rows[machine.row_ms] += message.rows
        self._highest[machine.author] = message.step
        self._add(message)
        for other in self._machines:
            if other is not machine:
                other.clock.hear(machine.author, (message.rows,), self._now_ms)

    def _add(self, message: _Message) -> None:
        """Put the message into its step's sum: only that step's quotient changes. The weight is constant."""
        rule, basis = Rule(), self._laboratory.basis
        total, rows = self.sums.get(message.step, (basis.zero(), 0))
        after = total + message.total, rows + message.rows
        self.sums[message.step] = after
        change = after[0] / (after[1] + rule.noise_rows) - total / (rows + rule.noise_rows)
        self.core = self.core - rule.rate / basis.curvature * change


def _manifest() -> Manifest:
    """Return what the step clock asks of a run: its steps, and that a message counts up to so many rows."""
    manifest = manifest_of(Shape(authors=2, steps=_STEPS), tiny_tensors())
    return replace(manifest, method=replace(manifest.method, core=CoreKind.DENSE, directions=BATCH_ROWS))


def _drawn(pool: np.ndarray, seed: int) -> Iterator[int]:
    """Yield all rows of the pool in random order, again and again."""
    chance = np.random.default_rng(seed)
    while True:
        yield from chance.permutation(pool).tolist()
