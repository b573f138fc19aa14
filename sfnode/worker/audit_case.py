"""One message under audit: what was measured of it, how far off an honest author may be, and the verdict. Pure.

The rule is the same for every message and every look at it. Two kinds of difference are honest: number formats round
differently, and an author may have lacked an update or had one more. Both are measured where the message was: on its
state, for its seed and a few unrelated ones. With n scalars, each off by e there (root mean square over all seeds, or
over the message's own if that is more: normalised scalars are noisier where slopes are small), an honest claim is off
by at most (sqrt(n) + 6) e. If differences are normally distributed, the length of n of them is about sqrt(n) e, give or
take e / sqrt(2) (Fisher's approximation of chi-squared): 6 e is eight times that. It leaves room for an e that was
measured on few scalars, and for rare large differences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from protocol.documents import deviation
from protocol.ledger import Envelope
from protocol.run import Method, ScalarKind

Scalars = tuple[int, ...]
Measured = Sequence[Scalars | None]  # of several seeds; None where the loss was not finite

TOLERANCE_MIN: Final = 0.1  # of the measurement's length: other kernels, even where formats do not differ
TOLERANCE_MAX: Final = 1.0  # a claim of nothing at all is as far off: an agreement within more says nothing
_SPARE_SCALARS: Final = 6.0
_ENERGY: Final = 1_024  # of a normalised scalar, in the mean over those that were measured (SPEC 5.2)
_ROUNDING: Final = 0.5  # quanta that one scalar may be off by, by rounding alone


class AuditVerdict(StrEnum):
    """What an audit says of a message."""

    AGREES = "agrees"
    MISMATCH = "NOT WHAT WAS CLAIMED"
    UNJUDGED = "cannot be judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remeasurement:
    """One message, measured again.

    Attributes:
        measured: scalars of the nearest measurement; empty where none could be made.
        deviation: of the claim from them (SPEC 9.3).
        tolerance: the deviation up to which the claim may be honest.
        reason: why it cannot be judged; empty for other verdicts.
    """

    envelope: Envelope
    measured: Scalars
    deviation: float
    tolerance: float
    verdict: AuditVerdict
    reason: str


@dataclass(slots=True)
class AuditCase:
    """A message, the nearest measurement so far, and how far off it may be.

    Attributes:
        nearest, dtype: the measurement, and the number format that it was made in; None: the auditor's own.
        allowed: length of the difference, in quanta, that an honest author may have.
        doubt: why the message cannot be judged, whatever was measured.
    """

    envelope: Envelope
    nearest: Scalars | None = None
    dtype: str | None = None
    allowed: float = 0.0
    doubt: str = ""

    def see(self, measured: Scalars | None, dtype: str | None = None) -> None:
        """One more measurement, in the format ``dtype``; None where the loss was not finite."""
        if measured is None:
            return
        if self.nearest is None or math.dist(measured, self.claimed) < math.dist(self.nearest, self.claimed):
            self.nearest, self.dtype = measured, dtype

    @property
    def claimed(self) -> Scalars:
        """The message's scalars."""
        return self.envelope.scalars

    @property
    def deviation(self) -> float:
        """Of the claim from the nearest measurement; infinite where there is none."""
        return math.inf if self.nearest is None else deviation(self.claimed, self.nearest)

    @property
    def tolerance(self) -> float:
        """The deviation up to which the claim may be honest."""
        if self.nearest is None:
            return TOLERANCE_MIN
        length = max(math.hypot(*self.nearest), math.sqrt(len(self.nearest)))
        return max(TOLERANCE_MIN, self.allowed / length)

    @property
    def is_open(self) -> bool:
        """Whether it would be a mismatch if nothing more was measured."""
        return not self.doubt and self.deviation > self.tolerance

    @property
    def is_unclear(self) -> bool:
        """Whether more measurements may change the verdict."""
        return self.is_open or self.is_vague

    @property
    def is_vague(self) -> bool:
        """Whether it agrees within a tolerance that says nothing, so that only a closer measurement would."""
        return not self.doubt and TOLERANCE_MIN < self.deviation <= self.tolerance and self.tolerance >= TOLERANCE_MAX

    def judged(self) -> Remeasurement:
        """The verdict."""
        verdict, reason = self._verdict()
        return Remeasurement(
            envelope=self.envelope,
            measured=self.nearest or (),
            deviation=self.deviation,
            tolerance=self.tolerance,
            verdict=verdict,
            reason=reason,
        )

    def _verdict(self) -> tuple[AuditVerdict, str]:
        if self.doubt:
            return AuditVerdict.UNJUDGED, self.doubt
        if self.deviation <= TOLERANCE_MIN:
            return AuditVerdict.AGREES, ""
        if self.deviation > self.tolerance:
            return AuditVerdict.MISMATCH, ""
        if self.is_vague:
            return AuditVerdict.UNJUDGED, "honest measurements differ too much here"
        return AuditVerdict.AGREES, ""


def directions_claimed(method: Method, scalars: Scalars) -> int:
    """How many of D directions a message's author measured (SPEC 9.3): what the last ones gave may be rounded to 0.

    Then the energy of normalised scalars tells.
    """
    told = method.directions_measured(scalars)
    if method.scalar is ScalarKind.RAW:
        return told
    steps = [scalars[start : start + method.directions] for start in range(0, len(scalars), method.directions)]
    energies = [sum(q * q for q in step) for step in steps if max(map(abs, step)) < method.clip]
    of_block = _ENERGY * method.shares
    blocks = max(((2 * energy + of_block) // (2 * of_block) for energy in energies), default=0)
    return max(told, min(blocks, method.blocks) * method.shares)


def allowed_difference(scalars: int, usual: Measured, *others: Measured) -> float | None:
    """Length in quanta by which an honest message may be off; None where too little could be measured.

    Args:
        scalars: how many of a message's were measured; the others are 0 everywhere.
        usual: of several seeds, the message's own first, on its state.
        others: of the same seeds, each in another way that an honest author may have measured in.
    """
    squares = [_largest_mean_square(scalars, usual, other) for other in others]
    if not squares or None in squares:
        return None
    noise = math.sqrt(_ROUNDING**2 + sum(square for square in squares if square is not None))
    return noise * (math.sqrt(scalars) + _SPARE_SCALARS)


def _largest_mean_square(scalars: int, one: Measured, other: Measured) -> float | None:
    """Over all seeds, or over the message's own."""
    found = [_mean_square(scalars, one[:count], other[:count]) for count in (1, len(one))]
    return max((each for each in found if each is not None), default=None)


def _mean_square(scalars: int, one: Measured, other: Measured) -> float | None:
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    if not pairs:
        return None
    return sum(math.dist(a, b) ** 2 for a, b in pairs) / (scalars * len(pairs))
