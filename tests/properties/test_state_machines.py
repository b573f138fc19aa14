"""Ledger, replica and sync under any sequence of operations, held against a plain model of the specification."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from protocol.errors import Ignore, IgnoreReason, Reject, RejectReason
from protocol.ledger.envelope import Envelope
from protocol.ledger.ledger import Ledger
from protocol.state.replica import Replica
from protocol.sync.anti_entropy import Claims, SyncSession, answer
from protocol.wire import Message, Records, decode_untrusted, encode
from tests.fuzz.choices import Choices
from tests.fuzz.lies import lie
from tests.properties.plain_model import PlainModel
from tests.support.ledgers import MemoryArchive, add, ledger_of, seal
from tests.support.manifests import small_manifest

LONG = small_manifest(epoch_steps=512, clip=100, steps=2_048, authors_max=3)  # two spans, four epochs
AUTHORS = st.integers(0, 3)
STEPS = st.sampled_from((0, 1, 511, 512, 1_023, 1_024, 2_047))
SCALARS = st.sampled_from((1, -2, 100))
LOCAL = small_manifest(local_steps=2, directions=2, authors_max=3)


# --- ledger and replica


class LedgerMachine(RuleBasedStateMachine):
    """One replica that is told records in any order; the model has the sets."""

    offered = Bundle("offered")

    @initialize(in_memory_max=st.none() | st.integers(0, 3))
    def begin(self, in_memory_max: int | None) -> None:
        """None: without an archive."""
        if in_memory_max is not None:
            self.replica = Replica(LONG, self.archive, in_memory_max=in_memory_max)

    def __init__(self) -> None:
        super().__init__()
        self.archive = MemoryArchive()
        self.replica = Replica(LONG)
        self.model = PlainModel(LONG)
        self.accepted: list[bytes] = []
        self.void_slots: set[tuple[bytes, int]] = set()

    @rule(target=offered, author=AUTHORS, step=STEPS, scalar=SCALARS, horizon=st.none() | STEPS)
    def offer(self, author: int, step: int, scalar: int, horizon: int | None) -> bytes:
        record = seal(LONG, author, step, scalar)
        self._offer(record, horizon)
        return record

    @rule(record=offered)
    def offer_again(self, record: bytes) -> None:
        self._offer(record, None)

    @rule(record=offered, other=offered, at=st.integers(0, 63), flip=st.integers(1, 255))
    def offer_with_another_signature(self, record: bytes, other: bytes, at: int, flip: int) -> None:
        """Known payloads are recognised without a look at the signature; others are refused for it."""
        signature = bytearray(record[-64:])
        signature[at] ^= flip
        for forged in (record[:-64] + bytes(signature), record[:-64] + other[-64:]):
            if forged != record:
                self._offer(forged, None, is_forged=True)

    @rule(count=st.integers(0, 3))
    def sum_some(self, count: int) -> None:
        self.replica.sum_some(count)

    @rule()
    def look_at_the_state(self) -> None:
        assert self.replica.state_digest() == self.model.state_digest()

    def _offer(self, record: bytes, horizon: int | None, *, is_forged: bool = False) -> None:
        expected = self._expected(record, horizon, is_forged=is_forged)
        outcome = _outcome(self.replica, record, horizon)
        if not isinstance(outcome, tuple):
            assert outcome is expected
            return
        envelope, voided = outcome
        assert expected == ("ACCEPT" if voided is None else "VOID")
        assert record not in self.accepted
        self.archive.store([record])
        self.model.add(record[:-64])
        self.accepted.append(record)
        if voided is not None:
            assert {voided.payload, envelope.payload} == self.model.slots[_slot(record)]
            self.void_slots.add(_slot(record))

    def _expected(self, record: bytes, horizon: int | None, *, is_forged: bool) -> object:
        held = self.model.slots.get(_slot(record), set())
        author, step = _slot(record)
        if len(held) == 2:
            return IgnoreReason.SLOT_VOID
        if record[:-64] in held:
            return IgnoreReason.ALREADY_HELD
        if not held and horizon is not None and step > horizon:
            return IgnoreReason.TOO_EARLY
        if author not in self.model.authors and len(self.model.authors) == LONG.authors_max:
            return IgnoreReason.AUTHORS_FULL
        if is_forged:
            return RejectReason.SIGNATURE
        return "VOID" if held else "ACCEPT"

    @invariant()
    def counts_and_order_are_the_models(self) -> None:
        ledger = self.replica.ledger
        assert ledger.authors() == self.model.authors
        assert (ledger.updates, ledger.void_slots) == (len(self.model.counting), self.model.void)
        assert [envelope.payload for envelope in ledger.slots.envelopes()] == self.model.counting
        assert all(len(self.model.slots[slot]) == 2 for slot in self.void_slots)

    @invariant()
    def root_is_a_function_of_the_set(self) -> None:
        assert self.replica.ledger.root() == self.model.root()

    def teardown(self) -> None:
        middle = len(self.accepted) // 2
        for order in (self.accepted[::-1], self.accepted[middle:] + self.accepted[:middle]):
            assert ledger_of(LONG, order).root() == self.model.root()
        assert self.replica.state_digest() == self.replica.replayed_digest() == self.model.state_digest()


def _outcome(
    replica: Replica, record: bytes, horizon: int | None
) -> tuple[Envelope, Envelope | None] | RejectReason | IgnoreReason:
    try:
        return replica.add(record, horizon_step=horizon)
    except (Reject, Ignore) as refusal:
        return refusal.reason


def _slot(record: bytes) -> tuple[bytes, int]:
    return record[:32], int.from_bytes(record[32:36], "big")


def test_ledger__any_sequence_of_records_and_looks__equals_the_plain_model() -> None:
    run_state_machine_as_test(LedgerMachine, settings=settings(max_examples=60, stateful_step_count=30))


@pytest.mark.parametrize("steps", [(0, 2, 38), (14, 16)])
def test_state__rounds_of_two_steps_and_two_directions__equals_the_plain_model(steps: tuple[int, ...]) -> None:
    replica, model = Replica(LOCAL), PlainModel(LOCAL)
    for author in range(3):
        for step in steps:
            record = seal(LOCAL, author, step)
            replica.add(record)
            model.add(record[:-64])
    assert replica.state_digest() == model.state_digest()
    assert replica.ledger.root() == model.root()


# --- sync


SMALL = small_manifest(authors_max=8)
POOL = [seal(SMALL, author, step, version) for author in range(3) for step in (0, 5, 39) for version in (1, 2, 3)]
NODES = st.integers(0, 2)
# Spans, shards, one page, payload hashes of every author, one pull.
HONEST_REQUESTS_MAX = 1 + 1 + 1 + 3 + 1


class SyncMachine(RuleBasedStateMachine):
    """Three ledgers that fill up and ask each other, with sessions that break off and answers that lie."""

    def __init__(self) -> None:
        super().__init__()
        self.ledgers = [Ledger(SMALL) for _ in range(3)]
        self.claims = [Claims() for _ in range(3)]
        self.model = PlainModel(SMALL)

    @initialize(node=NODES, count=st.integers(0, len(POOL)))
    def begin(self, node: int, count: int) -> None:
        for record in POOL[:count]:
            self._add(node, record)

    @rule(node=NODES, record=st.sampled_from(POOL))
    def learn(self, node: int, record: bytes) -> None:
        self._add(node, record)

    @rule(asker=NODES, other=NODES, records=st.lists(st.sampled_from(POOL), max_size=3), turn=st.integers(0, 4))
    def compare(self, asker: int, other: int, records: list[bytes], turn: int) -> None:
        """An honest session; the other's ledger grows at some point of it, which is nobody's fault."""
        session = SyncSession(self.ledgers[asker], self.claims[asker], None)
        request, asked = session.advance(None, 1), 1
        while request is not None:
            if asked == turn:
                for record in records:
                    self._add(other, record)
            *frames, reply = answer(self.ledgers[other], request)
            self._take(asker, session, frames)
            asked += 1
            request = session.advance(_over_the_wire(reply), asked)  # type: ignore[arg-type]
        assert asked <= HONEST_REQUESTS_MAX + 1
        assert session.is_complete and not session.skipped
        self._check_ended(asker, session)

    @rule(asker=NODES, other=NODES, after=st.integers(0, 4))
    def break_off(self, asker: int, other: int, after: int) -> None:
        """The neighbour goes in the middle of a session."""
        session = SyncSession(self.ledgers[asker], self.claims[asker], None)
        request = session.advance(None, 1)
        for number in range(after):
            if request is None:
                break
            *frames, reply = answer(self.ledgers[other], request)
            self._take(asker, session, frames[: number % 2])
            request = session.advance(reply, number + 2)  # type: ignore[arg-type]
        self._check_ended(asker, session)

    @rule(asker=NODES, other=NODES, lies=st.lists(st.none() | st.binary(max_size=6), min_size=1, max_size=12))
    def believe_a_liar(self, asker: int, other: int, lies: list[bytes | None]) -> None:
        """A changed answer here and there: a Reject, or a session that ends; never a wrong ledger."""
        session = SyncSession(self.ledgers[asker], self.claims[asker], None)
        request = session.advance(None, 1)
        with suppress(Reject):
            for number, how in enumerate(lies):
                if request is None:
                    break
                *frames, reply = answer(self.ledgers[other], request)
                changed = None if how is None else lie(reply, Choices(how))
                self._take(asker, session, frames)
                request = session.advance(changed or reply, number + 2)  # type: ignore[arg-type]
        self._check_ended(asker, session)

    @invariant()
    def no_ledger_holds_what_nobody_signed(self) -> None:
        for ledger in self.ledgers:
            assert {envelope.record for envelope in ledger.slots.envelopes()} <= set(POOL)

    def teardown(self) -> None:
        """Two rounds of honest sessions: the first may end a slot as void at one node and not yet at another."""
        for _ in range(2):
            for asker in range(3):
                for other in range(3):
                    self.compare(asker, other, [], 0)
        assert {ledger.root() for ledger in self.ledgers} == {self.model.root()}

    def _add(self, node: int, record: bytes) -> None:
        add(self.ledgers[node], record)
        self.model.add(record[:-64])

    def _take(self, asker: int, session: SyncSession, frames: list[Message]) -> None:
        for frame in frames:
            assert isinstance(frame, Records)
            records = self.ledgers[asker].codec.split_untrusted(frame.data)
            session.count_records(records)
            for record in records:
                add(self.ledgers[asker], record)

    def _check_ended(self, asker: int, session: SyncSession) -> None:
        session.close()
        assert not self.claims[asker].taken
        assert not any(session.is_answer(number) for number in range(16))


def _over_the_wire(message: Message) -> Message:
    return decode_untrusted(encode(message))


def test_sync__any_sessions_with_breaks_and_lies__end_and_honest_ones_make_all_equal() -> None:
    run_state_machine_as_test(SyncMachine, settings=settings(max_examples=40, stateful_step_count=20))
