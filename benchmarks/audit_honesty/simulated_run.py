"""A run in virtual time, as a data directory sees it: authors of several speeds and number formats, who come and go,
are cut off, are expelled, sign twice, or cheat. What they measure is measured for real. Time is in usual rounds.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from statistics import median_low

import numpy as np

from benchmarks.audit_honesty.formats import FORMATS, StateEstimator
from protocol.crypto import Author, Signer, hashing
from protocol.ledger import Envelope, EnvelopeCodec, StatementCodec
from protocol.run import Manifest, ScalarKind
from protocol.state import Coefficients
from protocol.subspace import quantise_dense

HONEST, EXPELLED, EQUIVOCATOR = "honest", "expelled", "equivocator"
CHEATS = ("random", "flipped", "copied", "zeros", "scaled")
_RIGHT_SIZE = 3  # so many of them claim scalars of a size that normalised ones may have
_HONEST_AUTHORS = 8
_SCALE = 2
_PATIENCE = 3.0  # rounds that an author waits for half of the others
_AHEAD_MAX = 8
_RETRY = 0.2
_LATENCY, _SLOW_LATENCY, _SLOW_SHARE = 0.15, 2.0, 0.05
_AWAY_SHARE, _AWAY_MAX = 0.02, 12.0
_VOIDED_SHARE = 0.1
_EXCLUDED_FROM, _EXCLUDED_AT = 0.3, 0.6  # of the run's steps


@dataclass(slots=True, eq=False)
class Participant:
    """One author, and what they hold.

    Attributes:
        pace: rounds that a measurement takes.
        away_until: until then nothing comes or goes.
        mailbox: what came meanwhile, and what they want to send.
    """

    signer: Signer
    role: str
    dtype: str
    pace: float
    state: Coefficients
    held: dict[tuple[Author, int], Envelope | None] = field(default_factory=dict)
    highest: dict[Author, int] = field(default_factory=dict)
    excluded_from: dict[Author, int] = field(default_factory=dict)
    next_step: int = 0
    waiting_since: float | None = None
    away_until: float = 0.0
    mailbox: list[Callable[[], None]] = field(default_factory=list)

    def others(self) -> list[int]:
        """Highest steps of all others that were heard of."""
        return [step for author, step in self.highest.items() if author != self.signer.author] or [0]

    def take(self, envelope: Envelope) -> bool:
        """Whether it changed anything: the first payload of a slot counts, a second one makes it void."""
        slot = (envelope.author, envelope.step)
        if envelope.step >= self.excluded_from.get(envelope.author, 1 << 20):
            return False
        if slot not in self.held:
            self.held[slot] = envelope
            self.state.add([envelope])
            self.highest[envelope.author] = max(envelope.step, self.highest.get(envelope.author, -1))
            return True
        first = self.held[slot]
        if first is None or first.payload == envelope.payload:
            return False
        self.state.remove([first])
        self.held[slot] = None
        return True

    def exclude(self, author: Author, step: int) -> None:
        """Take out what no longer counts."""
        self.excluded_from[author] = step
        gone = [slot for slot in self.held if slot[0] == author and slot[1] >= step]
        self.state.remove([each for slot in gone if (each := self.held.pop(slot))])


class SimulatedRun:
    """Runs to its end at once; then `records` and `statement` are what the first author's directory holds."""

    def __init__(self, manifest: Manifest, owner: Signer, sessions: dict[str, StateEstimator], number: int) -> None:
        self.records: list[bytes] = []
        self.roles: dict[Author, str] = {}
        self._manifest = manifest
        self._sessions = sessions
        self._chance = random.Random(number)
        self._codec = EnvelopeCodec(manifest)
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        cheats = CHEATS[:_RIGHT_SIZE] if manifest.method.scalar is ScalarKind.NORMALISED else CHEATS
        roles = (*[HONEST] * _HONEST_AUTHORS, EXPELLED, EQUIVOCATOR, *cheats)
        self._people = [self._participant(number, place, role) for place, role in enumerate(roles)]
        self._expelled = self._people[_HONEST_AUTHORS].signer.author
        self._excluded_from = round(_EXCLUDED_FROM * manifest.steps)
        self._excluded_at, self._is_expelled = round(_EXCLUDED_AT * manifest.steps), False
        self.statement = StatementCodec(manifest).exclude(owner, self._expelled, self._excluded_from)
        for person in self._people:
            self._at(0.0, partial(self._begin, person))
        while self._events:
            self._now, _, event = heapq.heappop(self._events)
            event()

    def _participant(self, number: int, place: int, role: str) -> Participant:
        person = Participant(
            signer=Signer(f"audits {number} {place}".encode().ljust(32, b".")),
            role=role,
            dtype=FORMATS[place % len(FORMATS)],
            pace=1.0 if place == 0 else self._chance.uniform(0.5, 2.5),
            state=Coefficients(self._manifest),
        )
        self.roles[person.signer.author] = person.role
        return person

    def _at(self, moment: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._order), event))

    def _latency(self) -> float:
        slow = self._chance.expovariate(1 / _SLOW_LATENCY) if self._chance.random() < _SLOW_SHARE else 0.0
        return self._chance.expovariate(1 / _LATENCY) + slow

    # --- one author -----------------------------------------------------------------------------------------

    def _begin(self, person: Participant) -> None:
        """Start the next step, if the clock lets them."""
        if self._is_away(person):
            return
        middle = median_low(person.others())
        person.next_step = max(person.next_step, middle)
        if person.next_step >= self._manifest.steps or person.signer.author in person.excluded_from:
            return
        person.waiting_since = self._now if person.waiting_since is None else person.waiting_since
        behind = sum(step < person.next_step - 2 for step in person.others())
        is_early = 2 * behind > len(person.others()) and self._now - person.waiting_since < _PATIENCE
        is_cut_off = person.away_until > self._now
        if not is_cut_off and (is_early or person.next_step > middle + _AHEAD_MAX):
            self._at(self._now + _RETRY, partial(self._begin, person))
            return
        person.waiting_since = None
        envelope = self._codec.seal(person.signer, person.next_step, self._claim(person))
        person.next_step += 1
        self._at(self._now + person.pace * self._chance.uniform(0.8, 1.2), partial(self._publish, person, envelope))

    def _is_away(self, person: Participant) -> bool:
        """Now and then an author is switched off for a while, or goes on alone; the first one never."""
        if person is self._people[0] or person.away_until > self._now or self._chance.random() > _AWAY_SHARE:
            return False
        person.away_until = self._now + self._chance.uniform(1, _AWAY_MAX)
        self._at(person.away_until, partial(self._come_back, person))
        is_off = self._chance.random() < 1 / 2
        if is_off:
            self._at(person.away_until, partial(self._begin, person))
        return is_off

    def _come_back(self, person: Participant) -> None:
        waiting, person.mailbox = person.mailbox, []
        for event in waiting:
            event()

    def _reach(self, person: Participant, event: Callable[[], None]) -> None:
        """What comes to a person who is away waits."""
        if person.away_until > self._now:
            person.mailbox.append(event)
        else:
            event()

    def _expel(self) -> None:
        for person in self._people:
            exclusion = partial(person.exclude, self._expelled, self._excluded_from)
            self._at(self._now + self._latency(), partial(self._reach, person, exclusion))

    def _publish(self, person: Participant, envelope: Envelope) -> None:
        self._deliver(person, envelope)
        if self._people[0].next_step > self._excluded_at and not self._is_expelled:
            self._is_expelled = True
            self._expel()
        self._reach(person, partial(self._send, person, envelope))
        if person.role == EQUIVOCATOR and self._chance.random() < _VOIDED_SHARE:
            second = self._codec.seal(person.signer, envelope.step, self._times(-1, _sealed(envelope)))
            self._at(self._now + self._chance.uniform(0, 2 * _AWAY_MAX), partial(self._send, person, second))
        self._begin(person)

    def _send(self, person: Participant, envelope: Envelope) -> None:
        for other in self._people:
            if other is not person:
                delivery = partial(self._deliver, other, envelope)
                self._at(self._now + self._latency(), partial(self._reach, other, delivery))

    def _deliver(self, person: Participant, envelope: Envelope) -> None:
        if person.take(envelope) and person is self._people[0]:
            self.records.append(envelope.record)

    # --- what they claim ------------------------------------------------------------------------------------

    def _claim(self, person: Participant) -> tuple[int, ...]:
        if person.role == "copied":
            return self._copied(person)
        step = person.next_step
        seed = hashing.seed_of(self._manifest.run_id, person.signer.author, step)
        is_invented = person.role == "random"
        measured = self._sessions[person.dtype].scalars(person.state, seed ^ is_invented, step)
        factor = {"zeros": 0, "flipped": -1, "scaled": _SCALE, EXPELLED: self._expelled_factor()}.get(person.role, 1)
        return self._times(factor, measured)

    def _times(self, factor: int, scalars: tuple[int, ...]) -> tuple[int, ...]:
        """A multiple of what was measured, as far as the rules of a message let it be one."""
        method = self._manifest.method
        if method.is_dense:
            mean = factor * 2.0**method.quantum_exp * np.array(scalars[1:], dtype=np.float64)
            return quantise_dense(method, scalars[0], mean)
        return tuple(max(-method.clip, min(method.clip, factor * each)) for each in scalars)

    def _expelled_factor(self) -> int:
        return -1 if self._manifest.method.scalar is ScalarKind.NORMALISED else -4

    def _copied(self, person: Participant) -> tuple[int, ...]:
        """The newest message of somebody else."""
        known = [each for each in person.held.values() if each and each.author != person.signer.author]
        newest = max(known, key=lambda each: each.step, default=None)
        return _sealed(newest) if newest else self._sessions[person.dtype].scalars(person.state, 0, 0)


def _sealed(envelope: Envelope) -> tuple[int, ...]:
    """What was sealed: the scalars, with the numbers of a dense message."""
    return (*envelope.scalars, *envelope.numbers.tolist())
