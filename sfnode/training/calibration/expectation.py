"""Try the first steps of a new run from its start, by an invented author, on held-back examples.

Neither the calibration nor the author has seen these examples, so they show what a volunteer will see.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from protocol.crypto import Signer
from protocol.run import Manifest
from protocol.state import Coefficients
from protocol.subspace import Bases
from sfnode.training.calibration.calibration import Calibration, hold_back, judged, rows_in
from sfnode.training.calibration.found_basis import Judged
from sfnode.training.calibration.renewal_trial import RenewalTrial, take_steps
from sfnode.training.estimator import Estimator
from sfnode.training.model import quantised
from sfnode.training.task import Example, Scores, TaskData

HELD_MIN: Final = 32  # examples: fewer show next to nothing
_HELD_MAX: Final = 200  # examples, for a standard error of about three points
_STEPS_MAX: Final = 8
_SHARE: Final = 3  # the calibration's rows divided by this bound the rows of the steps; one round is always taken
_AUTHOR: Final = Signer(bytes([1]) * 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTrial:
    """Result of some steps of one author at one learning rate, from the run's start.

    Attributes:
        rate: in the form of `sfnode init --learning-rate`.
        before, after: means over the held-back examples.
        error: standard error of the accuracy after the steps; of the loss where there is no accuracy.
        step_rows: number of forward rows of the steps.
        change: change of the loss, with a standard error from differences of single examples.
    """

    rate: float
    before: Judged
    after: Judged
    error: float
    step_rows: int
    change: RenewalTrial

    @property
    def hurts(self) -> bool:
        """Return whether the steps raised the loss by more than its noise."""
        return self.change.hurts


def set_apart(data: TaskData, used: Sequence[Example]) -> TaskData:
    """Hold back up to 200 examples not in ``used`` for evaluation; all others are the author's, as in a run."""
    seen = frozenset(used)
    _, held = hold_back([example for example in data.examples if example not in seen], most=_HELD_MAX)
    is_held = frozenset(held)  # the same text may be there twice
    others = tuple(example for example in data.examples if example not in is_held)
    return replace(data, examples=others, evaluation_examples=tuple(held))


def steps_of(manifest: Manifest, data: TaskData, calibration_rows: int) -> range:
    """Return the first steps of the rounds to try: one at least, within their share of rows and the first epoch."""
    method = manifest.method
    rounds = max(1, math.floor(calibration_rows / _SHARE / _round_rows(manifest, data)))
    last = min(_STEPS_MAX, method.epoch_steps, manifest.steps, rounds * method.local_steps)
    return range(0, last, method.local_steps)


def rows_of(manifest: Manifest, data: TaskData, calibration_rows: int) -> int:
    """Estimate how many forward passes of a row one rate takes."""
    steps = len(steps_of(manifest, data, calibration_rows)) * _round_rows(manifest, data)
    return round(steps) + 2 * rows_in(data.evaluation_examples)


def _round_rows(manifest: Manifest, data: TaskData) -> float:
    return 2 * manifest.task.batch_rows * manifest.method.local_steps * rows_in(data.examples) / len(data.examples)


def try_rates(
    calibration: Calibration, bases_at: Callable[[float], Bases], rates: Sequence[float], calibration_rows: int
) -> tuple[RateTrial, ...]:
    """Try ``rates`` in turn until one does not hurt; each further one would cost as much again.

    Args:
        calibration: with the data that `set_apart` returns.
        bases_at: returns the bases of the run with this learning rate.
        rates: in descending order of preference.
    """
    data, before, tried = calibration.data, None, list[RateTrial]()
    for rate in rates:
        bases = bases_at(rate)
        session, state = Estimator(calibration.shared, bases, data), Coefficients(bases.manifest)
        before = before or _judge(calibration, bases, state)
        rows = take_steps(session, state, [_AUTHOR], steps_of(bases.manifest, data, calibration_rows))
        tried.append(_compared(rate, before, _judge(calibration, bases, state), rows, data))
        if not tried[-1].hurts:
            break
    return tuple(tried)


@torch.inference_mode()
def _judge(calibration: Calibration, bases: Bases, state: Coefficients) -> Scores:
    """Score the held-back examples at ``state``; losses and hits in fp64 on the CPU."""
    switch, epochs = calibration.shared.switch, {epoch: state.core(epoch) for epoch in state.epochs()}
    with switch.using(quantised.closed_weights(bases, epochs, switch.base, switch.placed)):
        found = calibration.judge(calibration.data.evaluation_examples)
    return replace(found, loss=found.loss.double().cpu(), right=found.right.double().cpu())


def _compared(rate: float, before: Scores, after: Scores, step_rows: int, data: TaskData) -> RateTrial:
    is_completion = data.evaluation_examples[0].is_completion
    first, last = (judged(each, is_completion=is_completion) for each in (before, after))
    change = RenewalTrial(
        loss_before=first.loss,
        loss_after=last.loss,
        error=_error(after.loss - before.loss),
        examples=len(after.loss),
        authors=1,
        rows=step_rows + 2 * rows_in(data.evaluation_examples),
    )
    if is_completion:
        error = _error(after.loss)
    else:  # one more hit and one more miss keep the error of a share above zero
        share = (float(after.right.sum()) + 1) / (len(after.right) + 2)
        error = math.sqrt(share * (1 - share) / len(after.right))
    return RateTrial(rate=rate, before=first, after=last, error=error, step_rows=step_rows, change=change)


def _error(values_N: Tensor) -> float:
    """Return the standard error of the mean."""
    return float(values_N.std()) / math.sqrt(len(values_N))
