"""Measures messages of others again on the public data, for ``sfnode audit``. Torch stays in the worker.

A message that agrees on the likeliest states needs no further look. Any other is examined until it agrees, or until
nothing is left that an honest author may have done. First the noise at its place is measured, then other number formats
are tried, then other states. In the end other messages of the same round must confirm that the state is right.
"""

import math
import random
from collections.abc import Iterator, Sequence
from itertools import chain

from protocol.crypto import Author
from protocol.errors import OperatorError, WorkerMemoryError
from protocol.ledger import Envelope, Ledger
from protocol.run import SignedManifest
from protocol.state import Coefficients
from sfnode.worker.audit_case import SPARE_SCALARS, AuditCase, Scalars, allowed_difference, directions_claimed
from sfnode.worker.held_out_measuring import Measuring
from sfnode.worker.past_states import ROUNDS_AHEAD, PastStates
from sfnode.worker.supervisor import worker_socket
from sfnode.worker_protocol import TrainingConfig

_CONTROL_SCALARS = 32  # of unrelated seeds, to measure how much honest measurements differ: to an eighth
_EXPULSIONS_TRIED = 4  # before and after the last one in force, as far as this node knows
_FORMATS = ("fp32", "bf16", "fp16", "int8", "int8-fp32", "int4")
_LACKING = 4  # each fourth of the late messages is missing: the steps of a dense run become shorter and shorter
_WITNESSES = 5
_WITNESSES_NEEDED = 2


def choose_messages(ledger: Ledger, author: Author | None, count: int, chooser: random.Random) -> list[Envelope]:
    """Choose at random at most ``count`` messages that count, of ``author`` or of anybody; return them by step.

    OperatorError if there is none.
    """

    def envelopes() -> Iterator[Envelope]:
        """Yield them by (step, author), without a list of all: they may be on the disk."""
        return (envelope for envelope in ledger.slots.envelopes() if author is None or envelope.author == author)

    known = sum(1 for _ in envelopes())
    if not known:
        whose = "no update at all" if author is None else f"no update of author {author.hex()}"
        raise OperatorError(f"the ledger holds {whose}: nothing to audit")
    places = frozenset(chooser.sample(range(known), min(count, known)))
    return [envelope for place, envelope in enumerate(envelopes()) if place in places]


async def audit_messages(
    signed: SignedManifest, config: TrainingConfig, past: PastStates, chosen: Sequence[Envelope]
) -> list[AuditCase]:
    """Measure ``chosen`` (by step) again on ``config.data``, and return them with their verdicts.

    OperatorError: model, data or device cannot be used. WorkerError: the worker ended.
    """
    async with worker_socket(config) as socket:
        measuring = Measuring(socket, signed, config)
        await measuring.open(measuring.dtype)
        cases = [AuditCase(envelope, envelope.measured) for envelope in chosen]
        await Auditor(measuring, past).examine(cases)
        await measuring.aclose()
    return cases


class Auditor:
    """Examines cases, the cheapest way first, and only those still open. Cases always come by step."""

    def __init__(self, measuring: Measuring, past: PastStates) -> None:
        self._measuring = measuring
        self._past = past

    async def examine(self, cases: Sequence[AuditCase]) -> None:
        """Examine the cases until each agrees, cannot be judged, or nothing is left to try."""
        await self._look(cases)
        await self._measure_noise(_unclear(cases))
        untried = await self._try_formats(cases)
        await self._try_states(cases)
        await self._try_arrivals(_unclear(cases))
        _doubt(_open(cases) if untried else [], untried)
        await self._hear_witnesses(_open(cases))

    async def _look(self, cases: Sequence[AuditCase]) -> None:
        for rounds_ahead in (0, -1):
            await self._measure(cases, self._past.by_step(_messages(cases), rounds_ahead))
        for case in cases:
            if case.nearest is None:
                case.doubt = "the loss is not finite here"

    async def _measure(
        self, cases: Sequence[AuditCase], states: Iterator[Coefficients], dtype: str | None = None
    ) -> None:
        """Measure each case in ``dtype``; None: in this node's format, and in the one that came nearest."""
        for case, state in zip(cases, states, strict=True):
            await self._measure_once(case, state, dtype)

    async def _measure_once(self, case: AuditCase, state: Coefficients, dtype: str | None = None) -> float:
        """Return how far the measurement is from the claim, in quanta; of two formats the lesser."""
        distance = math.inf
        for each in dict.fromkeys([dtype or case.dtype, dtype]):
            distance = min(distance, case.see((await self._scalars(case, state, [case.envelope.seed], each))[0], each))
        return distance

    async def _scalars(
        self, case: AuditCase, state: Coefficients, seeds: Sequence[int], dtype: str | None = None
    ) -> list[Scalars | None]:
        directions, dtype = self._directions(case), dtype or self._measuring.dtype
        return await self._measuring.scalars(state, case.envelope.step, seeds, directions, dtype)

    def _directions(self, case: AuditCase) -> int:
        return directions_claimed(self._past.manifest.method, case.envelope.scalars)

    async def _measure_noise(self, cases: Sequence[AuditCase]) -> None:
        """Measure how much an honest author's numbers may differ by rounding, and by a round of the others."""
        partner = "fp32" if self._measuring.dtype not in ("fp32", "fp16") else "bf16"
        if cases and (why := await self._why_not(partner)):
            _doubt(cases, f"its author may compute in {partner}, which cannot be tried here: {why}")
            return
        counts = [self._directions(case) * self._past.manifest.method.local_steps for case in cases]
        seeds = []
        for case, count in zip(cases, counts, strict=True):
            # The unrelated seeds follow from the message's own: every audit measures the same ones.
            others = random.Random(case.envelope.seed)
            unrelated = (others.getrandbits(64) for _ in range(-(-_CONTROL_SCALARS // count)))
            seeds.append([case.envelope.seed, *unrelated])
        rounded, usual, lagging, lacking = [], [], [], []
        for case, state, each in zip(cases, self._past.by_step(_messages(cases)), seeds, strict=True):
            usual.append(await self._scalars(case, state, each))
            rounded.append(await self._scalars(case, state, each, partner))
        for case, state, each in zip(cases, self._past.by_step(_messages(cases), -1), seeds, strict=True):
            lagging.append(await self._scalars(case, state, each))
        is_dense, spare = self._past.manifest.method.is_dense, SPARE_SCALARS
        if is_dense:
            spare = 0.0
            states = self._past.by_step(_messages(cases), lacking=_LACKING)
            lacking = [await self._scalars(*each) for each in zip(cases, states, seeds, strict=True)]
        for case, count, *measured in zip(cases, counts, usual, rounded, *[lacking] * is_dense, lagging, strict=True):
            case.see(measured[1][0], partner)
            allowed = allowed_difference(count, *measured, spare_last=spare)
            case.allowed = allowed or 0.0
            case.doubt = "" if allowed else "the loss is not finite here in other number formats"

    async def _try_states(self, cases: Sequence[AuditCase]) -> None:
        """Try states with others further ahead, with an author cut off, and with other moments of the expulsions."""
        for rounds_ahead in ROUNDS_AHEAD:
            some = _unclear(cases)
            await self._measure(some, self._past.by_step(_messages(some), rounds_ahead))
        # An author may have been cut off for ever more rounds, with and without the later statements.
        round_steps, last = self._past.manifest.method.local_steps, 0
        powers = range(1, (self._past.manifest.steps // round_steps).bit_length() + 1)
        for lag in sorted(lag for power in powers for lag in (2**power, 3 * 2 ** (power - 1))):  # 2, 3, 4, 6, 8, 12 ...
            some = [case for case in _unclear(cases) if case.envelope.step > last * round_steps]
            await self._measure(some, self._past.by_step(_messages(some), -lag, is_cut_off=True))
            some = [case for case in _unclear(some) if self._past.has_expulsions_since(case.envelope, lag)]
            await self._measure(some, self._past.by_step(_messages(some), -lag))
            last = lag
        count = min(_EXPULSIONS_TRIED, len(self._past.expulsions))
        for more in (each for each in range(-count, count + 1) if each):
            some = _unclear(cases)
            await self._measure(some, self._past.by_step(_messages(some), expulsions_more=more))
        some = _unclear(cases)
        await self._measure(some, self._past.counted(_messages(some)))

    async def _try_arrivals(self, cases: Sequence[AuditCase]) -> None:
        """Try what was held here when each message came; then at moments before, and all formats at the nearest one."""
        by_record = {case.envelope.record: case for case in cases}
        nearest = dict.fromkeys(by_record, (math.inf, 0))
        for arrival in self._past.as_arrived(_messages(cases)) if cases else ():
            case, record = by_record[arrival.envelope.record], arrival.envelope.record
            if case.is_open or (case.is_vague and not arrival.moment):
                found = await self._measure_once(case, arrival.state)
                nearest[record] = min(nearest[record], (found, arrival.moment))
            if arrival.is_late and case.is_open:
                case.doubt = "it came here long after its round: its author may have been cut off"
        some = _open(cases)
        for arrival in self._past.as_arrived(_messages(some)) if some else ():
            if abs(arrival.moment - nearest[arrival.envelope.record][1]) <= 1:
                for dtype in self._measuring.formats:
                    await self._measure_once(by_record[arrival.envelope.record], arrival.state, dtype)

    async def _try_formats(self, cases: Sequence[AuditCase]) -> str:
        """Try other number formats; return what could not be tried, empty if all could."""
        untried = ""
        for dtype in _FORMATS:
            some = _unclear(cases)
            if not some or dtype == self._measuring.dtype:
                continue
            if why := await self._why_not(dtype):
                untried = f"its author may compute in {dtype}, which cannot be tried here: {why}"
                continue
            for rounds_ahead in (0, -1):
                await self._measure(some, self._past.by_step(_messages(some), rounds_ahead), dtype)
        return untried

    async def _why_not(self, dtype: str) -> str:
        """Return why nothing can be measured in ``dtype``; empty if it can."""
        try:
            await self._measuring.open(dtype)
        except (OperatorError, WorkerMemoryError) as error:
            return str(error)
        return ""

    async def _hear_witnesses(self, cases: Sequence[AuditCase]) -> None:
        """Doubt a case if other messages of its round fail, too: then the state is unknown, or the fault lies here."""
        ledger, witnesses = self._past.ledger, []
        for envelope in _messages(cases):
            step = envelope.step
            others = [author for author, last in ledger.authors().items() if last >= step and author != envelope.author]
            found = [each for author in others for each in ledger.slots.first_of(author, range(step, step + 1))]
            witnesses.append(sorted(found, key=lambda each: each.seed)[:_WITNESSES])  # nobody can choose the seeds
        by_step = sorted(chain(*witnesses), key=lambda each: (each.step, each.author))
        heard = {each.record: AuditCase(each, each.measured) for each in by_step}
        await self._look(list(heard.values()))
        for case, some in zip(cases, witnesses, strict=True):
            called = [heard[each.record] for each in some]
            distances = [math.dist(each.claimed, each.nearest) for each in called if each.nearest is not None]
            good = sum(distance <= case.allowed / 2 for distance in distances)
            if good < min(_WITNESSES_NEEDED, len(called)):
                case.doubt = f"of {len(called)} other messages of that round only {good} came out"


def _open(cases: Sequence[AuditCase]) -> list[AuditCase]:
    return [case for case in cases if case.is_open]


def _unclear(cases: Sequence[AuditCase]) -> list[AuditCase]:
    """Return those whose verdict more measurements may change."""
    return [case for case in cases if case.is_open or case.is_vague]


def _doubt(cases: Sequence[AuditCase], reason: str) -> None:
    for case in cases:
        case.doubt = reason


def _messages(cases: Sequence[AuditCase]) -> list[Envelope]:
    return [case.envelope for case in cases]
