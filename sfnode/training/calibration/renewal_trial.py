"""Try a renewed basis: its start, and some steps in it by invented authors, judged on held-back examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from protocol.crypto import Signer, hashing
from protocol.errors import NumericError
from protocol.ledger import Envelope, EnvelopeCodec
from protocol.run import Manifest
from protocol.state import Coefficients
from protocol.subspace import Bases, BasisContent
from sfnode.training.calibration.calibration import Calibration, hold_back
from sfnode.training.estimator import Estimate, Estimator

_STEPS: Final = 8
_AUTHORS_MAX: Final = 8  # a trial costs the rows that these authors spend on its steps
_HELD_MAX: Final = 256  # examples
_HELD_MIN: Final = 32
_NOISE: Final = 2.0  # standard errors: smaller changes may be chance


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPlan:
    """A renewal from the first step of ``epoch`` on, and its trial.

    Attributes:
        authors: at most eight of them take part; 0: there is no trial.
        offered: a renewal by somebody else that is to be tried; None: one is made first.
    """

    epoch: int
    authors: int
    offered: BasisContent | None = None

    @property
    def signers(self) -> list[Signer]:
        """Return authors that exist only in the trial."""
        return [Signer(bytes([number + 1]) * 32) for number in range(min(self.authors, _AUTHORS_MAX))]

    def steps(self, manifest: Manifest) -> range:
        """Return the first steps of the trial's rounds: one at least, and no more than the epoch and the run have left.

        An envelope holds the steps of one round, so a round is what can be tried.
        """
        length, stride = manifest.method.epoch_steps, manifest.method.local_steps
        first = self.epoch * length
        return range(first, min(first + max(_STEPS, stride), first + length, manifest.steps), stride)

    def rows(self, manifest: Manifest) -> int:
        """Estimate how many forward passes of a row the trial takes."""
        steps = len(self.steps(manifest)) * manifest.method.local_steps
        return 2 * _HELD_MAX + 2 * manifest.task.batch_rows * steps * len(self.signers)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalTrial:
    """Mean losses on held-back examples: at first, and after the new start and the steps.

    Attributes:
        error: standard error of the mean difference of the losses.
        examples: number of held-back examples.
        rows: number of forward rows that the trial took.
    """

    loss_before: float
    loss_after: float
    error: float
    examples: int
    authors: int
    rows: int

    @property
    def hurts(self) -> bool:
        """Return whether the loss rose by more than its noise, or is not a number."""
        return not self.loss_after - self.loss_before <= _NOISE * self.error


def try_renewal(
    calibration: Calibration, manifest: Manifest, found: BasisContent, plan: TrialPlan
) -> RenewalTrial | None:
    """Compare losses before and after adding the start of ``found`` and training some steps in its basis.

    The steps have the run's learning rate and messages. Returns None where too few examples are left to hold any back.

    Args:
        calibration: the model at the weights that the run has reached, and examples that were not used for ``found``;
            authors learn from those that are not held back.
    """
    others, held = hold_back(calibration.data.examples, most=_HELD_MAX, share=2)
    if len(held) < _HELD_MIN:
        return None
    data = replace(calibration.data, examples=tuple(others), evaluation_examples=tuple(held))
    before = Estimator(calibration.shared, Bases(manifest, replace(found, start=None)), data).evaluation_losses()
    session, rows = Estimator(calibration.shared, Bases(manifest, found), data), 2 * len(held)
    state = Coefficients(manifest)
    rows += take_steps(session, state, plan.signers, plan.steps(manifest))
    after = session.evaluation_losses()
    return RenewalTrial(
        loss_before=float(before.mean()),
        loss_after=float(after.mean()),
        error=float((after - before).std()) / math.sqrt(len(held)),
        examples=len(held),
        authors=len(plan.signers),
        rows=rows,
    )


def take_steps(session: Estimator, state: Coefficients, signers: Sequence[Signer], steps: range) -> int:
    """Add the signers' messages of the rounds that begin at ``steps``, all of one epoch, to ``state``.

    Returns the number of forward rows that they took.
    """
    rows = 0
    for step in steps:
        messages = [made for signer in signers if (made := _message(session, signer, step))]
        rows += sum(estimate.rows for estimate, _ in messages)
        state.add(envelope for _, envelope in messages)
        epoch = step // session.manifest.method.epoch_steps
        session.set_coefficients(epoch, state.core(epoch))
    return rows


def _message(session: Estimator, signer: Signer, step: int) -> tuple[Estimate, Envelope] | None:
    """Return an author's estimate, and its record as a receiver decodes it; None where a node would skip the step."""
    manifest, codec = session.manifest, EnvelopeCodec(session.manifest)
    try:
        estimate = session.estimate(hashing.seed_of(manifest.run_id, signer.author, step), step)
    except NumericError:
        return None
    return estimate, codec.decode_untrusted(codec.seal(signer, step, estimate.scalars).record)
