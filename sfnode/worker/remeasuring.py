"""Re-runs messages of others on the public data and compares: what ``sfnode audit`` does. Torch lives in the worker.

A message does not say which updates its author held when it measured. At step t an honest node holds nearly all of the
steps before t, and may lack the last ones; so every message is measured on two states, with and without the round
before, and the nearer one counts. What the two differ by calibrates the tolerance: it is what an honest author may
differ by for no more than a late update.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

from protocol.crypto import Author
from protocol.documents import deviation
from protocol.errors import NumericError, OperatorError
from protocol.ledger import Envelope, Ledger
from protocol.run import DATA_PRIVATE, Manifest, SignedManifest
from protocol.state import Coefficients
from sfnode.worker.client import WorkerSession, coefficients_of, connect
from sfnode.worker.supervisor import worker_socket
from sfnode.worker.training_config import TrainingConfig
from sfnode.worker_protocol import CoefficientsSet, Estimated, EstimateRequest, SessionOpened

TOLERANCE_MIN: Final = 0.1  # rounding to a quantum, and other kernels on other hardware
TOLERANCE_MAX: Final = 0.8  # unrelated scalars deviate by 1.4, none at all by 1: beyond this nothing can be told
_TOLERANCE_FACTOR: Final = 3  # times the median spread of honest measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class Remeasurement:
    """One message, measured again.

    Attributes:
        measured: scalars on the nearer of the two states.
        deviation: of the claim from them.
        spread: between the measurements on the two states.
    """

    envelope: Envelope
    measured: tuple[int, ...]
    deviation: float
    spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What was found, and the deviation up to which a claim is taken for honest."""

    findings: tuple[Remeasurement, ...]
    tolerance: float

    @property
    def mismatches(self) -> tuple[Remeasurement, ...]:
        """Findings outside of the tolerance."""
        return tuple(finding for finding in self.findings if finding.deviation > self.tolerance)


def check_auditable(manifest: Manifest) -> None:
    """OperatorError when nobody but the authors can repeat what they measured."""
    if manifest.task.data == DATA_PRIVATE:
        raise OperatorError(
            "this run's data are private: only their owner can repeat a measurement, nobody can audit it"
        )


def choose_messages(ledger: Ledger, author: Author | None, count: int, chooser: random.Random) -> list[Envelope]:
    """At most ``count`` messages that count, of ``author`` or of anybody, at random; by step.

    OperatorError when there is none.
    """
    known = sum(1 for _ in _envelopes_of(ledger, author))
    if not known:
        whose = "no update at all" if author is None else f"no update of author {author.hex()}"
        raise OperatorError(f"the ledger holds {whose}: nothing to audit")
    places = frozenset(chooser.sample(range(known), min(count, known)))
    return [envelope for place, envelope in enumerate(_envelopes_of(ledger, author)) if place in places]


def _envelopes_of(ledger: Ledger, author: Author | None) -> Iterator[Envelope]:
    """By (step, author). They may lie on the disk: never all of them in a list."""
    return (envelope for envelope in ledger.envelopes() if author is None or envelope.author == author)


async def audit_messages(
    signed: SignedManifest, config: TrainingConfig, ledger: Ledger, chosen: Sequence[Envelope]
) -> Audit:
    """Measure ``chosen`` (by step) again on ``config.data``.

    Raises:
        OperatorError: model, data or device cannot be used, or honest measurements differ so much that none can be
            told from an invented one.
        WorkerError: the worker ended.
    """
    async with worker_socket(config) as socket:
        session = await connect(socket)
        await session.request(replace(config, eval_data=None).open_session(signed), SessionOpened)
        findings = []
        for envelope, states in zip(chosen, states_before(signed.manifest, ledger, chosen), strict=True):
            if (found := await _measure(session, envelope, states)) is not None:
                findings.append(found)
        await session.aclose()
    return Audit(findings=tuple(findings), tolerance=tolerance_of([finding.spread for finding in findings]))


def tolerance_of(spreads: Sequence[float]) -> float:
    """Three times the median spread, within bounds; OperatorError beyond what tells honest from invented."""
    wanted = max(TOLERANCE_MIN, _TOLERANCE_FACTOR * median(spreads)) if spreads else TOLERANCE_MIN
    if wanted > TOLERANCE_MAX:
        raise OperatorError(
            f"measurements on two neighbouring states differ by {median(spreads):.2f} (unrelated ones by 1.4): the "
            "run moves too much in a round to be audited"
        )
    return wanted


def states_before(
    manifest: Manifest, ledger: Ledger, chosen: Sequence[Envelope]
) -> Iterator[tuple[Coefficients, Coefficients]]:
    """For each message, by step: the state of all earlier rounds, and that without the last round of other authors."""
    full, lagging = Coefficients(manifest), Coefficients(manifest)
    for_full, for_lagging = _ByStep(ledger.envelopes()), _ByStep(ledger.envelopes())
    last_round: list[Envelope] = []
    for envelope in chosen:
        lagging_step = envelope.step - manifest.method.local_steps
        last_round = [each for each in last_round if each.step >= lagging_step]
        full.add(for_full.before(lagging_step))
        fresh = list(for_full.before(envelope.step))
        full.add(fresh)
        last_round += fresh
        lagging.add(for_lagging.before(lagging_step))
        own = [each for each in last_round if each.author == envelope.author]
        lagging.add(own)
        yield full, lagging
        lagging.remove(own)


class _ByStep:
    """Envelopes by step, which may lie on the disk: taken up to a step at a time."""

    def __init__(self, envelopes: Iterator[Envelope]) -> None:
        self._envelopes = envelopes
        self._next = next(envelopes, None)

    def before(self, step: int) -> Iterator[Envelope]:
        """Those not yet taken that come before ``step``."""
        while self._next is not None and self._next.step < step:
            taken, self._next = self._next, next(self._envelopes, None)
            yield taken


async def _measure(
    session: WorkerSession, envelope: Envelope, states: tuple[Coefficients, Coefficients]
) -> Remeasurement | None:
    """None when the loss is not finite here: a claim that cannot be repeated is not thereby false."""
    measured = []
    for state in states:
        await session.request(coefficients_of(state, state.revisions()), CoefficientsSet)
        try:
            request = EstimateRequest(step=envelope.step, seed=envelope.seed)
            measured.append((await session.request(request, Estimated)).scalars)
        except NumericError:
            return None
    nearest = min(measured, key=lambda scalars: deviation(envelope.scalars, scalars))
    return Remeasurement(
        envelope=envelope,
        measured=nearest,
        deviation=deviation(envelope.scalars, nearest),
        spread=deviation(measured[0], measured[1]),
    )


def report_name(envelope: Envelope) -> Path:
    """File name of the report about a message."""
    return Path(f"{envelope.author.hex()[:16]}-{envelope.step}.audit")
