"""What a renewed basis does to a run: its start, and some steps in it by authors made up for this, on examples held
back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from protocol.crypto import Signer
from protocol.errors import NumericError
from protocol.ledger import Envelope, EnvelopeCodec
from protocol.run import Manifest
from protocol.state import Coefficients
from protocol.subspace import Bases, BasisContent, seed_of
from sfnode.training.estimator import Estimate, Estimator
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, TaskData

_STEPS: Final = 8
_AUTHORS_MAX: Final = 8  # a trial costs as many rows as these authors spend on so many steps
_HELD_MAX: Final = 256  # examples
_HELD_MIN: Final = 32
_NOISE: Final = 2.0  # standard errors: fewer are chance


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPlan:
    """A renewal from the first step of ``epoch`` on, and its trial.

    Attributes:
        authors: of more than eight, eight take part; 0: there is no trial.
        offered: what to try, which somebody else made; None: what is made for it.
    """

    epoch: int
    authors: int
    offered: BasisContent | None = None

    @property
    def signers(self) -> list[Signer]:
        """Authors that exist in the trial alone."""
        return [Signer(bytes([number + 1]) * 32) for number in range(min(self.authors, _AUTHORS_MAX))]

    def steps(self, manifest: Manifest) -> range:
        """Return the first steps of the trial's rounds: one at least, and no more than the epoch and the run have left.

        An envelope holds the steps of one round, so a round is what can be tried.
        """
        length, stride = manifest.method.epoch_steps, manifest.method.local_steps
        first = self.epoch * length
        return range(first, min(first + max(_STEPS, stride), first + length, manifest.steps), stride)

    def rows(self, manifest: Manifest) -> int:
        """About how many forward passes of a row it takes."""
        steps = len(self.steps(manifest)) * manifest.method.local_steps
        return 2 * _HELD_MAX + 2 * manifest.task.batch_rows * steps * len(self.signers)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalTrial:
    """Mean losses on ``examples`` held back, without the new start and after it and the steps, and the standard error
    of their difference.

    Attributes:
        rows: forward rows that the trial took.
    """

    loss_before: float
    loss_after: float
    error: float
    examples: int
    authors: int
    rows: int

    @property
    def hurts(self) -> bool:
        """Whether the loss rose by more than its noise, or to where it is no number."""
        return not self.loss_after - self.loss_before <= _NOISE * self.error


def try_renewal(
    shared: SharedModel, manifest: Manifest, found: BasisContent, data: TaskData, plan: TrialPlan
) -> RenewalTrial | None:
    """Add the start of ``found`` and train some steps in its basis, at the rate and with the messages of the run;
    losses before and after.

    None where too few examples are left to hold any back.

    Args:
        shared: the model at the weights that the run has reached.
        data: with the examples that were not used for ``found``; authors learn from those that are not held back.
    """
    held, others = _held_back(data.examples)
    if len(held) < _HELD_MIN:
        return None
    data = replace(data, examples=others, evaluation_examples=held)
    before = Estimator(shared, Bases(manifest, replace(found, start=None)), data).evaluation_losses()
    session, rows = Estimator(shared, Bases(manifest, found), data), 2 * len(held)
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

    Returns the forward rows that they took.
    """
    rows = 0
    for step in steps:
        messages = [made for signer in signers if (made := _message(session, signer, step))]
        rows += sum(estimate.rows for estimate, _ in messages)
        state.add(envelope for _, envelope in messages)
        epoch = step // session.manifest.method.epoch_steps
        session.set_coefficients(epoch, state.flat(epoch))
    return rows


def _message(session: Estimator, signer: Signer, step: int) -> tuple[Estimate, Envelope] | None:
    """What a receiver makes of the author's record; None where the author skips the step, as a node does."""
    manifest, codec = session.manifest, EnvelopeCodec(session.manifest)
    try:
        estimate = session.estimate(seed_of(manifest.run_id, signer.author, step), step)
    except NumericError:
        return None
    return estimate, codec.decode_untrusted(codec.seal(signer, step, estimate.scalars).record)


def _held_back(examples: Sequence[Example]) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Every other example, at most so many, and the rest."""
    held = range(0, len(examples), 2)[:_HELD_MAX]
    chosen = set(held)
    return (
        tuple(examples[number] for number in held),
        tuple(example for number, example in enumerate(examples) if number not in chosen),
    )
