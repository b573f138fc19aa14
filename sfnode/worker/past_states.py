"""The states on which an author may have measured, rebuilt from all records that a data directory ever stored.

A message does not say which updates its author held. They were nearly all of the earlier rounds, including those of
authors expelled later and of slots that have become void since. The author may have lacked the last rounds, or held
later rounds of faster authors. So there is a family of states, not a single one: by step, and by order of arrival here.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median_low

from protocol.crypto import Author
from protocol.ledger import Envelope, Ledger, StatementCodec
from protocol.run import Manifest
from protocol.state import Coefficients
from sfnode.storage import StoredRecords

ROUNDS_AHEAD = (1, 2, 4, 8)  # how far others may be ahead of an author who is in touch (SPEC 9.1.4)
_SUMMED_AT_ONCE = 4_096
_MOMENTS = 8  # in each of the last rounds before a message came


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Holds the state of this node when a message came to it, or at a moment before.

    Attributes:
        moment: counted back from the message's arrival, which is 0.
        state: includes all of the author's own earlier updates; use it before asking for the next one.
        is_late: most authors were further ahead than their clocks allow for an author who is in touch.
    """

    envelope: Envelope
    moment: int
    state: Coefficients
    is_late: bool


class PastStates:
    """Rebuilds states for messages, which always come by step. Use each state before asking for the next one.

    Attributes:
        expulsions: the authors whose updates were removed when a statement came, in the order in which the statements
            came to this node; and the updates that counted until then, by step, never none.
    """

    def __init__(self, manifest: Manifest, ledger: Ledger, stored: StoredRecords) -> None:
        """Take a ledger, and the ``stored`` records and statements from which it was built."""
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
        lacking: int = 0,
    ) -> Iterator[Coefficients]:
        """Yield for each message its author's earlier rounds, and others' before the round ``rounds_ahead`` later.

        Expelled authors are removed after they fell silent, in the order of the statements. That moment is only roughly
        known: ``expulsions_more`` of them are removed in addition, or fewer if negative. An author who ``is_cut_off``
        since the last of these rounds got no later statement either. ``lacking`` n: one of n messages of the others'
        last rounds is missing.

        Updates in the states for A's messages of steps 2 and 3, one round ahead. X is expelled from step 1 on:

            step  0  1  2  3    for A2              for A3
            A     A0 A1 A2 A3   A0 A1               A0 A1 A2
            B     B0 B1 B2 B3   B0 B1 B2            B0 B1 B2 B3
            X     X0 X1         X0 X1: at work      X0: silent, so the expulsion is in force
        """
        state = Coefficients(self.manifest)
        summed = _ByStep(self.ledger.slots.first_envelopes())
        for envelope in chosen:
            bound = envelope.step + rounds_ahead * self._round_steps
            # One running sum serves all messages; the corrections for each message are undone after its use.
            state.add(summed.before(bound))
            out = self.expelled_before(bound if is_cut_off else envelope.step) + expulsions_more
            # The author knew their own rounds before the message; the rounds of other expelled authors counted until
            # the expulsion was in force.
            added = [
                update
                for number, (author, updates) in enumerate(self.expulsions.items())
                for update in updates
                if (author == envelope.author and update.step < envelope.step)
                or (author != envelope.author and number >= out and update.step < bound)
            ]
            added += self.ledger.slots.first_of(envelope.author, range(bound, envelope.step))
            removed = self.ledger.slots.first_of(envelope.author, range(envelope.step, bound))
            removed += self._lacked(envelope.author, bound, lacking) if lacking else []
            state.add(added)
            state.remove(removed)
            yield state
            state.add(removed)
            state.remove(added)

    def _lacked(self, author: Author, bound: int, share: int) -> list[Envelope]:
        """Return one of ``share`` messages of the others' last rounds before ``bound``; nobody chooses the seeds."""
        steps = range(max(0, bound - ROUNDS_AHEAD[-1] * self._round_steps), bound)
        others = [each for each in self.ledger.authors() if each != author]
        found = [envelope for other in others for envelope in self.ledger.slots.first_of(other, steps)]
        return [envelope for envelope in found if envelope.seed % share == 0]

    def expelled_before(self, step: int) -> int:
        """Count the expulsions in force at ``step``: those before the first whose author was still at work."""
        for number, updates in enumerate(self.expulsions.values()):
            if updates[-1].step >= step - self._round_steps:
                return number
        return len(self.expulsions)

    def has_expulsions_since(self, envelope: Envelope, rounds: int) -> bool:
        """Return whether other expulsions are in force for ``envelope`` than ``rounds`` rounds before it."""
        return self.expelled_before(envelope.step - rounds * self._round_steps) != self.expelled_before(envelope.step)

    def counted(self, chosen: Sequence[Envelope]) -> Iterator[Coefficients]:
        """Yield for each message all earlier rounds as they count today, without void slots and expelled authors."""
        state = Coefficients(self.manifest)
        summed = _ByStep(self.ledger.slots.envelopes())
        for envelope in chosen:
            state.add(summed.before(envelope.step))
            yield state

    def as_arrived(self, chosen: Sequence[Envelope]) -> Iterator[Arrival]:
        """Yield what this node held when each message came, in the order of arrival; skip messages that never came.

        Then, for the same message, what it held at moments before, always with all of the author's own: an author
        measures for a while, may start in the middle of a round, and may be cut off there.
        This says something about the author only if this node took part at that time.
        """
        wanted = {envelope.record: envelope for envelope in chosen}
        group = max(1, len(self.ledger.authors()) // _MOMENTS)
        held = _Held(self.manifest, self.ledger, self.expulsions)
        for _, record in self._stored.records():
            envelope = wanted.pop(record, None)
            if envelope is None:
                held.take(self.ledger.codec.decode_untrusted(record))
                continue
            with_all, out = held.sum_up(), held.expelled(self.expelled_before(envelope.step), envelope.author)
            with_all.remove(out)
            others = (each for each in reversed(held.counted) if each.author != envelope.author)
            is_late, newest = held.is_late(envelope), list(islice(others, group * _MOMENTS * ROUNDS_AHEAD[-1]))
            for moment, end in enumerate(range(0, len(newest) + 1, group)):
                with_all.remove(newest[max(0, end - group) : end])
                yield Arrival(envelope=envelope, moment=moment, state=with_all, is_late=is_late)
            with_all.add([*newest[:end], *out])
            held.take(envelope)


class _Held:
    """Tracks what this node held, record by record; ``counted``: the newest of the records that still count."""

    def __init__(self, manifest: Manifest, ledger: Ledger, expulsions: Mapping[Author, Sequence[Envelope]]) -> None:
        self._ledger = ledger
        self._ahead_steps = ROUNDS_AHEAD[-1] * manifest.method.local_steps
        self._state = Coefficients(manifest)
        self._waiting: list[Envelope] = []
        self._places = {author: place for place, author in enumerate(expulsions)}
        self._until = {author: updates[0].step for author, updates in expulsions.items()}
        self._of_expelled: dict[tuple[Author, int], Envelope] = {}  # today they hold no slot that could be void
        self._first_of_void: dict[tuple[Author, int], Envelope] = {}
        self._highest: dict[Author, int] = {}
        self.counted: deque[Envelope] = deque(maxlen=_SUMMED_AT_ONCE)

    def take(self, envelope: Envelope) -> None:
        """Add the next record; the second one of a void slot removes the first."""
        self._highest[envelope.author] = max(envelope.step, self._highest.get(envelope.author, -1))
        slot = (envelope.author, envelope.step)
        # The first record of a slot counted here until the second one came and made the slot void.
        if first := self._first_of_void.pop(slot, None) or self._of_expelled.pop(slot, None):
            self.sum_up().remove([first])
            return
        if envelope.step >= self._until.get(envelope.author, envelope.step + 1):
            self._of_expelled[slot] = envelope
        elif self._ledger.slots.is_void(*slot):
            self._first_of_void[slot] = envelope
        else:
            self.counted.append(envelope)
        self._waiting.append(envelope)
        if len(self._waiting) >= _SUMMED_AT_ONCE:
            self.sum_up()

    def sum_up(self) -> Coefficients:
        """Return the state with all records so far."""
        self._state.add(self._waiting)
        self._waiting = []
        return self._state

    def expelled(self, count: int, author: Author) -> list[Envelope]:
        """Return the records so far of the first ``count`` expelled authors, except ``author``."""
        return [each for (of, _), each in self._of_expelled.items() if self._places[of] < count and of != author]

    def is_late(self, envelope: Envelope) -> bool:
        """Return whether most other authors are further ahead of the message than the clock allows."""
        others = [step for author, step in self._highest.items() if author != envelope.author]
        return bool(others) and median_low(others) > envelope.step + self._ahead_steps


class _ByStep:
    """Takes envelopes in the order of their steps, which may come from the disk, up to a given step at a time."""

    def __init__(self, envelopes: Iterator[Envelope]) -> None:
        self._envelopes = envelopes
        self._next = next(envelopes, None)

    def before(self, step: int) -> Iterator[Envelope]:
        """Yield the envelopes before ``step`` that were not taken yet."""
        while self._next is not None and self._next.step < step:
            taken, self._next = self._next, next(self._envelopes, None)
            yield taken


def _expulsions(manifest: Manifest, ledger: Ledger, stored: StoredRecords) -> dict[Author, list[Envelope]]:
    """Return `PastStates.expulsions`."""
    codec = StatementCodec(manifest)
    named = [codec.decode_untrusted(statement).author for statement in stored.statements()]
    found: dict[Author, list[Envelope]] = {}
    for author in dict.fromkeys(reversed(named)):  # if several statements name an author, the last one counts
        first = ledger.roster.counts_until(author)
        records = stored.read_all(author) if author and first < manifest.steps else ()
        by_step: dict[int, Envelope] = {}
        for record in records:
            envelope = ledger.codec.decode_untrusted(record)
            by_step.setdefault(envelope.step, envelope)
        if updates := [envelope for step, envelope in sorted(by_step.items()) if step >= first]:
            found[author] = updates
    return dict(reversed(found.items()))
