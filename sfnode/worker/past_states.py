"""The states on which an author may have measured, rebuilt from everything that a data directory has ever taken in.

A message does not say which updates its author held: nearly all of the earlier rounds, those of authors who were
expelled later and slots that have become void since among them. They may have lacked the last rounds, or held rounds of
faster authors already. So there is no one state, but a family: by step, and in the order in which this node saw it all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Final

from protocol.crypto import Author
from protocol.ledger import Envelope, Ledger, StatementCodec
from protocol.run import Manifest
from protocol.state import Coefficients
from sfnode.storage import StoredRecords

ROUNDS_AHEAD: Final = (1, 2, 4, 8)  # so far ahead of an author who is in touch the others may be (SPEC 9.1.4)
_SUMMED_AT_ONCE: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Expulsion:
    """An author whose updates were taken out when a statement came.

    Attributes:
        updates: those that do not count any more and were in force until then, by step; never empty.
    """

    author: Author
    updates: tuple[Envelope, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """The state of this node when a message came to it.

    Attributes:
        state: with the message's author's own earlier updates; to be used before the next is asked for.
        is_late: most authors were further ahead than their clocks let them be of an author who is in touch.
    """

    envelope: Envelope
    state: Coefficients
    is_late: bool


class PastStates:
    """States by message. Messages always come by step, and each state is to be used before the next is asked for."""

    def __init__(self, manifest: Manifest, ledger: Ledger, stored: StoredRecords) -> None:
        """``stored``: the records and statements that ``ledger`` was made of."""
        self.manifest = manifest
        self.ledger = ledger
        self._stored = stored
        self._round_steps = manifest.method.local_steps
        self.expulsions = _expulsions(manifest, ledger, stored)

    def by_step(
        self,
        chosen: Sequence[Envelope],
        rounds_ahead: int = 0,
        *,
        expulsions_more: int = 0,
        is_cut_off: bool = False,
    ) -> Iterator[Coefficients]:
        """All earlier rounds of the message's author; of the others those before the round ``rounds_ahead`` after it.

        Authors who were expelled are out once they had fallen silent, in the order of the statements; this moment is
        known roughly only: ``expulsions_more`` of them are out in addition, or fewer. To an author who
        ``is_cut_off`` since the last of these rounds no later statement came either.
        """
        state = Coefficients(self.manifest)
        summed = _ByStep(self.ledger.first_envelopes())
        for envelope in chosen:
            bound = envelope.step + rounds_ahead * self._round_steps
            state.add(summed.before(bound))
            out = self.expelled_before(bound if is_cut_off else envelope.step) + expulsions_more
            added, removed = self._corrections(envelope, bound, out)
            state.add(added)
            state.remove(removed)
            yield state
            state.add(removed)
            state.remove(added)

    def _corrections(self, envelope: Envelope, bound: int, out: int) -> tuple[list[Envelope], list[Envelope]]:
        """What to add to the sum of all rounds before ``bound``, where the first ``out`` expulsions were in force, and
        what to take out of it."""
        added = [
            update
            for number, expulsion in enumerate(self.expulsions)
            for update in expulsion.updates
            if (expulsion.author == envelope.author and update.step < envelope.step)
            or (expulsion.author != envelope.author and number >= out and update.step < bound)
        ]
        added += self.ledger.first_of(envelope.author, range(bound, envelope.step))
        return added, self.ledger.first_of(envelope.author, range(envelope.step, bound))

    def expelled_before(self, step: int) -> int:
        """How many expulsions were in force at ``step``: those before the first whose author was still at work."""
        for number, expulsion in enumerate(self.expulsions):
            if expulsion.updates[-1].step >= step - self._round_steps:
                return number
        return len(self.expulsions)

    def has_expulsions_since(self, envelope: Envelope, rounds: int) -> bool:
        """Whether others are in force for ``envelope`` than were so many rounds before it."""
        return self.expelled_before(envelope.step - rounds * self._round_steps) != self.expelled_before(envelope.step)

    def counted(self, chosen: Sequence[Envelope]) -> Iterator[Coefficients]:
        """All earlier rounds as they count today: void slots and the expelled are out."""
        state = Coefficients(self.manifest)
        summed = _ByStep(self.ledger.envelopes())
        for envelope in chosen:
            state.add(summed.before(envelope.step))
            yield state

    def as_arrived(self, chosen: Sequence[Envelope]) -> Iterator[Arrival]:
        """What this node held when each message came, in the order of arrival; messages that never came are left out.

        Tells something of the author only where this node took part at that time.
        """
        wanted = {envelope.record: envelope for envelope in chosen}
        held = _Held(self.manifest, self.ledger, self.expulsions)
        for _, record in self._stored.records():
            envelope = wanted.pop(record, None)
            if envelope is None:
                held.take(self.ledger.codec.decode_untrusted(record))
                continue
            with_all, out = held.sum_up(), held.expelled(self.expelled_before(envelope.step), envelope.author)
            with_all.remove(out)
            yield Arrival(envelope=envelope, state=with_all, is_late=held.is_late(envelope))
            with_all.add(out)
            held.take(envelope)


class _Held:
    """What this node held, record by record."""

    def __init__(self, manifest: Manifest, ledger: Ledger, expulsions: Sequence[Expulsion]) -> None:
        self._ledger = ledger
        self._ahead_steps = ROUNDS_AHEAD[-1] * manifest.method.local_steps
        self._state = Coefficients(manifest)
        self._waiting: list[Envelope] = []
        self._places = {expulsion.author: place for place, expulsion in enumerate(expulsions)}
        self._until = {expulsion.author: expulsion.updates[0].step for expulsion in expulsions}
        self._of_expelled: list[Envelope] = []
        self._first_of_void: dict[tuple[Author, int], Envelope] = {}
        self._highest: dict[Author, int] = {}

    def take(self, envelope: Envelope) -> None:
        """The next record; the second of a void slot takes the first one out."""
        self._highest[envelope.author] = max(envelope.step, self._highest.get(envelope.author, -1))
        slot = (envelope.author, envelope.step)
        if slot in self._first_of_void:
            self.sum_up().remove([self._first_of_void.pop(slot)])
            return
        if self._ledger.is_void(*slot):
            self._first_of_void[slot] = envelope
        if envelope.step >= self._until.get(envelope.author, envelope.step + 1):
            self._of_expelled.append(envelope)
        self._waiting.append(envelope)
        if len(self._waiting) >= _SUMMED_AT_ONCE:
            self.sum_up()

    def sum_up(self) -> Coefficients:
        """The state with all that has come."""
        self._state.add(self._waiting)
        self._waiting = []
        return self._state

    def expelled(self, count: int, author: Author) -> list[Envelope]:
        """What has come of the first ``count`` who were expelled, but for ``author``."""
        return [each for each in self._of_expelled if self._places[each.author] < count and each.author != author]

    def is_late(self, envelope: Envelope) -> bool:
        """Whether most other authors are further ahead of the message than the clock lets them be."""
        others = [step for author, step in self._highest.items() if author != envelope.author]
        return bool(others) and median_low(others) > envelope.step + self._ahead_steps


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


def _expulsions(manifest: Manifest, ledger: Ledger, stored: StoredRecords) -> list[Expulsion]:
    """In the order in which the statements came to this node."""
    codec = StatementCodec(manifest)
    named = [codec.decode_untrusted(statement).author for statement in stored.statements()]
    found = []
    for author in dict.fromkeys(reversed(named)):  # of several statements about an author the last
        first = ledger.roster.counts_until(author)
        records = stored.read_all(author) if author and first < manifest.steps else ()
        by_step: dict[int, Envelope] = {}
        for record in records:
            envelope = ledger.codec.decode_untrusted(record)
            by_step.setdefault(envelope.step, envelope)
        updates = tuple(envelope for step, envelope in sorted(by_step.items()) if step >= first)
        if updates:
            found.append(Expulsion(author=author, updates=updates))
    return found[::-1]
