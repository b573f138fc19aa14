"""One message under audit: its measurements, the difference that an honest author may have, and the verdict. Pure.

The rule is the same for every message and every look at it. Two kinds of difference are honest: number formats round
differently, and an author may have lacked an update or had one more. Both are measured at the message's place: on its
state, for its seed and a few unrelated ones. Let n be the number of scalars and e the root mean square difference of
one scalar there, over all seeds or over the message's own, whichever is larger: normalised scalars are noisier where
slopes are small. Then an honest claim is off by at most (sqrt(n) + 6) e. If differences are normally distributed, the
length of n of them is about sqrt(n) e, give or take e / sqrt(2) (Fisher's approximation of chi-squared): 6 e is eight
times that. It leaves room for an e that was measured on few scalars, and for rare large differences.

The numbers of a dense message do not err alone but row by row, so n is the number of its rows. The last round of the
others moves all of them at once, and an author who held a part of it lies between: there is no 6 for that difference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from protocol.documents import audit_report
from protocol.errors import OperatorError
from protocol.ledger import Envelope
from protocol.run import DATA_PRIVATE, Manifest, Method, ScalarKind

Scalars = tuple[int, ...]
Measured = Sequence[Scalars | None]  # of several seeds; None if the loss was not finite

TOLERANCE_MIN = 0.1  # of the measurement's length: kernels differ, even with equal formats
TOLERANCE_MAX = 1.0  # a claim of zeros is this far off: agreement within more proves nothing
SPARE_SCALARS = 6.0
_ENERGY = 1_024  # mean square of the normalised scalars that were measured (SPEC 5.2)
_ROUNDING = 0.5  # quanta by which rounding alone may change one scalar


def check_auditable(manifest: Manifest) -> None:
    """Raise OperatorError if only the authors can repeat their measurements, or nobody can."""
    if manifest.task.draws_answers:
        raise OperatorError(
            "this run learns from rewards: two machines can draw different answers from one seed, so no message can be "
            "measured again. Compare what each author has given with `sfnode run show`, measure the model with "
            "`sfnode eval`, and let the owner expel who harms it"
        )
    if manifest.task.data == DATA_PRIVATE:
        raise OperatorError(
            "this run's data are private: only their owner can repeat a measurement, nobody can audit it"
        )


class AuditVerdict(StrEnum):
    """Names the result of an audit of a message."""

    AGREES = "agrees"
    MISMATCH = "NOT WHAT WAS CLAIMED"
    UNJUDGED = "cannot be judged"


@dataclass(slots=True)
class AuditCase:
    """Collects measurements of one message, and judges it.

    Attributes:
        claimed: what its author says to have measured.
        nearest: the measurement nearest to the claim; None if none could be made.
        dtype: its number format; None: the auditor's own.
        allowed: largest difference of an honest author, as a length in quanta.
        doubt: why the message cannot be judged, regardless of the measurements.
    """

    envelope: Envelope
    claimed: Scalars
    nearest: Scalars | None = None
    dtype: str | None = None
    allowed: float = 0.0
    doubt: str = ""

    def see(self, measured: Scalars | None, dtype: str | None = None) -> float:
        """Take one more measurement in the format ``dtype``, and return its distance from the claim, in quanta.

        None and infinite if the loss was not finite.
        """
        if measured is None:
            return math.inf
        distance = math.dist(measured, self.claimed)
        if self.nearest is None or distance < math.dist(self.nearest, self.claimed):
            self.nearest, self.dtype = measured, dtype
        return distance

    @property
    def deviation(self) -> float:
        """Return the deviation of the claim from the nearest measurement (SPEC 9.3); infinite if there is none."""
        return math.inf if self.nearest is None else audit_report.deviation(self.claimed, self.nearest)

    @property
    def tolerance(self) -> float:
        """Return the largest deviation of an honest claim."""
        if self.nearest is None:
            return TOLERANCE_MIN
        length = max(math.hypot(*self.nearest), math.sqrt(len(self.nearest)))
        return max(TOLERANCE_MIN, self.allowed / length)

    @property
    def is_open(self) -> bool:
        """Return whether the message would be a mismatch if nothing more were measured."""
        return not self.doubt and self.deviation > self.tolerance

    @property
    def is_vague(self) -> bool:
        """Return whether it agrees only within a tolerance that proves nothing, and a closer measurement is needed."""
        return not self.doubt and TOLERANCE_MIN < self.deviation <= self.tolerance and self.tolerance >= TOLERANCE_MAX

    @property
    def verdict(self) -> AuditVerdict:
        """Return the verdict by the measurements so far."""
        if self.is_open:
            return AuditVerdict.MISMATCH
        return AuditVerdict.UNJUDGED if self.reason else AuditVerdict.AGREES

    @property
    def reason(self) -> str:
        """Return why the message cannot be judged; empty for other verdicts."""
        return self.doubt or ("honest measurements differ too much here" if self.is_vague else "")


def directions_claimed(method: Method, scalars: Scalars) -> int:
    """Return how many of D directions a message's author measured (SPEC 9.3).

    The last scalars may be zeros by rounding. For normalised scalars the energy then shows how many were measured.
    """
    shown = method.directions_measured(scalars)
    if method.scalar is ScalarKind.RAW:
        return shown
    steps = [scalars[start : start + method.directions] for start in range(0, len(scalars), method.directions)]
    energies = [sum(q * q for q in step) for step in steps if max(map(abs, step)) < method.clip]
    of_block = _ENERGY * method.shares
    blocks = max(((2 * energy + of_block) // (2 * of_block) for energy in energies), default=0)
    return max(shown, min(blocks, method.blocks) * method.shares)


def allowed_difference(
    scalars: int, usual: Measured, *others: Measured, spare_last: float = SPARE_SCALARS
) -> float | None:
    """Return the length in quanta by which an honest message may be off; None if too little could be measured.

    Args:
        scalars: how many of a message's scalars were measured; the others are 0 everywhere. Of a dense one the rows.
        usual: the usual measurement on the message's state, of several seeds, the message's own first.
        others: of the same seeds, each measured in another way that an honest author may use.
        spare_last: what the last of these differences leaves room for, in scalars beyond sqrt(n).
    """
    squares = []
    for other in others:
        known = [math.dist(a, b) ** 2 for a, b in zip(usual, other, strict=True) if a is not None and b is not None]
        if not known:
            return None
        # Scalars of one seed may be noisier than most: the mean over all seeds counts, or that of the message's own.
        counts = (len(known),) if usual[0] is None or other[0] is None else (1, len(known))
        squares.append(max(sum(known[:count]) / (scalars * count) for count in counts))
    usual_spare = math.sqrt(scalars) + SPARE_SCALARS
    last = squares.pop() * (math.sqrt(scalars) + spare_last) ** 2
    return math.sqrt((_ROUNDING**2 + sum(squares)) * usual_spare**2 + last)
