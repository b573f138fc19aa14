"""A ledger whose records lie in an archive answers as one that has them in memory, and trusts no archive."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from protocol import limits
from protocol.crypto.hashing import Author
from protocol.errors import Ignore, IgnoreReason, StorageDamagedError
from protocol.ledger.archived_records import slots_in
from protocol.ledger.digest_buckets import bitmap_of
from protocol.ledger.ledger import Ledger
from protocol.ledger.statements import StatementCodec
from protocol.state.replica import Replica
from sfnode.storage.stored_records import replay, replay_statements
from tests.support.ledgers import MemoryArchive, add, admit, claim, digest_within, exclude, holdings_of, seal, signer
from tests.support.manifests import OWNER, small_manifest

INVITED = small_manifest(admission="invite", steps=2_048)
OPEN = small_manifest(steps=4_096)
AUTHORS = st.integers(0, 3)
STEPS = st.sampled_from((0, 1, 2, 15, 16, 511, 1_023, 1_024, 1_025, 2_047))
RECORDS = st.tuples(AUTHORS, STEPS, st.sampled_from((1, -2, 3))).map(lambda given: seal(INVITED, *given))
STATEMENTS = (
    AUTHORS.map(lambda author: admit(INVITED, author))
    | st.tuples(AUTHORS, STEPS).map(lambda given: exclude(INVITED, *given))
    | st.tuples(st.integers(0, 1), AUTHORS).map(lambda given: claim(INVITED, *given))
)
ALL_SHARDS = frozenset(range(256))
ALL_STEPS = b"\xff" * (limits.SPAN_STEPS // 8)
ALICE = signer(1).author


def verdict(act: Callable[[], object]) -> str:
    """What came of it, in words that are equal for equal outcomes."""
    try:
        return repr(act())
    except Ignore as ignore:
        return ignore.reason.name


def answers(ledger: Ledger, steps: bytes) -> dict[str, object]:
    """Everything that can be asked of a ledger."""
    buckets = [(span, signer(number).author) for span in range(2) for number in range(4)]
    asked: dict[str, Callable[[int, Author], object]] = {
        "records": lambda span, author: list(ledger.slots.records(span, author, steps)),
        "holdings": partial(holdings_of, ledger),
        "within": lambda span, author: digest_within(ledger, span, author, steps),
        "hashes": ledger.slots.payload_hashes,
    }
    answered: dict[str, object] = {
        "root": ledger.root(),
        "counts": (ledger.updates, ledger.void_slots),
        "authors": ledger.authors(),
        "spans": ledger.slots.span_digests(),
        "shards": [ledger.slots.shard_digests(span) for span in range(2)],
        "pages": [ledger.slots.holdings(span, ALL_SHARDS, bytes(32), 3) for span in range(2)],
        "envelopes": list(ledger.slots.envelopes()),
        "ordered": list(ledger.slots.ordered_records()),
    }
    return answered | {name: [ask(*bucket) for bucket in buckets] for name, ask in asked.items()}


class TwinMachine(RuleBasedStateMachine):
    """Two replicas, one with an archive, are told the same."""

    @initialize(in_memory_max=st.integers(0, 4), admitted=st.sets(AUTHORS))
    def start(self, in_memory_max: int, admitted: set[int]) -> None:
        self.in_memory_max = in_memory_max
        self.archive = MemoryArchive()
        self.plain = Replica(INVITED)
        self.archiving = Replica(INVITED, self.archive, in_memory_max=in_memory_max)
        self.statements: list[bytes] = []
        for author in sorted(admitted):
            self.state(admit(INVITED, author))

    @rule(records=st.lists(RECORDS, max_size=6))
    def offer(self, records: list[bytes]) -> None:
        """As a node does with a message: what is new is stored once all of it was looked at."""
        fresh: list[bytes] = []
        for record in records:
            outcomes = [verdict(lambda r=replica, b=record: r.add(b)) for replica in (self.plain, self.archiving)]  # type: ignore[misc]
            assert outcomes[0] == outcomes[1]
            if outcomes[0] not in IgnoreReason.__members__:
                fresh.append(record)
        self.archive.store(fresh)

    @rule(statement=STATEMENTS)
    def state(self, statement: bytes) -> None:
        outcomes = [verdict(lambda r=replica: r.add_statement(statement)) for replica in (self.plain, self.archiving)]  # type: ignore[misc]
        assert outcomes[0] == outcomes[1]
        self.statements.append(statement)

    @rule(steps=st.lists(STEPS, max_size=5))
    def look_closely(self, steps: list[int]) -> None:
        for bitmap in (bitmap_of(steps), ALL_STEPS):
            assert answers(self.plain.ledger, bitmap) == answers(self.archiving.ledger, bitmap)

    @rule(count=st.integers(0, 3))
    def sum_some(self, count: int) -> None:
        self.archiving.sum_some(count)

    @rule()
    def look_at_the_state(self) -> None:
        digest = self.plain.state_digest()
        assert digest == self.archiving.state_digest() == self.archiving.replayed_digest()

    @rule()
    def restart(self) -> None:
        """As a node does: from what is stored, statements first."""
        stored = [record for copies in self.archive.slots.values() for record in copies]
        self.plain = Replica(INVITED)
        self.archiving = Replica(INVITED, self.archive, in_memory_max=self.in_memory_max)
        for replica in (self.plain, self.archiving):
            replay_statements(replica, self.statements, Path("x"))
            replay(replica, enumerate(stored), Path("x"))

    @invariant()
    def roots_are_equal(self) -> None:
        assert self.plain.ledger.root() == self.archiving.ledger.root()


def test_ledger__with_an_archive__answers_everything_as_without() -> None:
    run_state_machine_as_test(TwinMachine, settings=settings(max_examples=100, stateful_step_count=25))


# --- what stays in memory


def in_memory(ledger: Ledger) -> int:
    """Records that a ledger keeps. Reads private parts: this is an inspection."""
    return sum(len(bucket._slots) for span in ledger.slots._spans.values() for _, bucket in span.buckets())


def archived(count: int, *, in_memory_max: int = 8) -> tuple[Ledger, MemoryArchive]:
    """Steps 0 ... count - 1 of author 1, each stored when it was taken in."""
    archive = MemoryArchive()
    ledger = Ledger(OPEN, archive, in_memory_max=in_memory_max)
    for step in range(count):
        ledger.add(seal(OPEN, 1, step))
        archive.store([seal(OPEN, 1, step)])
    return ledger, archive


def test_ledger__that_grows__keeps_the_latest_records_only() -> None:
    ledger, _ = archived(1_100)
    assert in_memory(ledger) <= 8
    assert ledger.highest_step(ALICE) == 1_099 and 1_099 % limits.SPAN_STEPS in ledger.slots._spans[1].get(ALICE)._slots  # type: ignore[union-attr]


def test_ledger__records_are_large__keeps_as_many_bytes_and_so_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECORD_BYTES_IN_MEMORY_MAX", 8 * Ledger(OPEN).codec.record_bytes)
    assert in_memory(archived(1_100, in_memory_max=1_000)[0]) <= 8


def test_ledger__growing_in_order__reads_each_record_back_once_and_hashes_none_again() -> None:
    ledger, archive = archived(1_100)
    ledger.root()
    assert archive.read_back <= 1_100


def test_ledger__slot_a_little_late_and_neighbour_a_little_behind__reads_nothing_back() -> None:
    ledger, archive = archived(100, in_memory_max=20)
    for step in (110, 105):
        ledger.add(seal(OPEN, 1, step))
        ledger.root()
    read_back = archive.read_back
    behind = Ledger(OPEN)
    for step in range(98):
        behind.add(seal(OPEN, 1, step))
    assert digest_within(ledger, 0, ALICE, bitmap_of(list(range(98)))) == holdings_of(behind, 0, ALICE).digest
    assert archive.read_back == read_back


def test_ledger__nothing_stored__forgets_nothing_and_does_not_ask_for_each_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archive = MemoryArchive()
    ledger = Ledger(OPEN, archive, in_memory_max=8)
    asked: list[int] = []

    def read(author: Author, steps: Sequence[int]) -> list[bytes]:
        asked.append(len(steps))
        return []

    monkeypatch.setattr(archive, "read", read)
    for step in range(100):
        ledger.add(seal(OPEN, 1, step))
    assert in_memory(ledger) == 100
    assert sum(asked) < 20 * 100
    assert len(list(ledger.slots.envelopes())) == 100


def test_ledger__stored_late__is_forgotten_later() -> None:
    archive = MemoryArchive()
    ledger = Ledger(OPEN, archive, in_memory_max=8)
    records = [seal(OPEN, 1, step) for step in range(200)]
    for record in records[:100]:
        ledger.add(record)
    archive.store(records[:100])
    for record in records[100:]:
        ledger.add(record)
        archive.store([record])
    assert in_memory(ledger) <= 8


def test_ledger__archive_with_another_payload_for_the_slot__keeps_its_own() -> None:
    """A node may have stored what it could not keep: its author was excluded from a full table."""
    archive = MemoryArchive([seal(OPEN, 1, 0, 99)])
    ledger = Ledger(OPEN, archive, in_memory_max=2)
    for step in range(40):
        ledger.add(seal(OPEN, 1, step))
        archive.store([seal(OPEN, 1, step)])
    assert list(ledger.slots.records(0, ALICE, bitmap_of([0]))) == [seal(OPEN, 1, 0)]
    assert in_memory(ledger) <= 4


@pytest.mark.parametrize("scalars", [(), (77,)], ids=["late", "void"])
def test_ledger__slot_of_a_span_left_behind__costs_reading_one_group_back(scalars: tuple[int, ...]) -> None:
    steps = [step for step in range(1_100) if scalars or step != 5]
    archive = MemoryArchive()
    ledger, plain = Ledger(OPEN, archive, in_memory_max=8), Ledger(OPEN)
    for record in (seal(OPEN, 1, step) for step in steps):
        ledger.add(record)
        plain.add(record)
        archive.store([record])
    before, read_back = holdings_of(ledger, 0, ALICE).digest, archive.read_back
    changed = seal(OPEN, 1, 5, *scalars)
    assert not ledger.holds(changed)  # as a node asks of every record
    ledger.add(changed)
    plain.add(changed)
    assert (ledger.root(), holdings_of(ledger, 0, ALICE)) == (plain.root(), holdings_of(plain, 0, ALICE))
    assert holdings_of(ledger, 0, ALICE).digest != before
    assert archive.read_back - read_back <= limits.GROUP_STEPS


def test_ledger__old_slots_become_void_one_after_the_other__each_sees_what_became_of_the_last() -> None:
    ledger, archive = archived(100)
    plain = Ledger(OPEN)
    for record in (seal(OPEN, 1, step) for step in range(100)):
        plain.add(record)
    for second in (seal(OPEN, 1, step, 77) for step in range(40)):
        assert not ledger.holds(second)
        assert ledger.add(second) == plain.add(second)
        archive.store([second])
        assert holdings_of(ledger, 0, ALICE) == holdings_of(plain, 0, ALICE)


def test_ledger__neighbour_without_some_old_slots__reads_their_groups_back_only() -> None:
    ledger, archive = archived(1_100)
    read_back = archive.read_back
    behind = Ledger(OPEN)
    for step in range(1_024):
        if step not in (5, 6, 500):
            behind.add(seal(OPEN, 1, step))
    held = holdings_of(behind, 0, ALICE)
    assert digest_within(ledger, 0, ALICE, held.valid) == held.digest
    assert archive.read_back - read_back <= 2 * limits.GROUP_STEPS


def test_replica__joiner_that_sums_slowly__waits_with_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    size = Ledger(OPEN).codec.record_bytes
    monkeypatch.setattr(limits, "WAITING_BYTES_MAX", 100 * size)
    replica = Replica(OPEN)
    for step in range(300):
        replica.add(seal(OPEN, 1, step))
        assert replica.unsummed <= 100
    assert replica.state_digest() == replica.replayed_digest()


def test_replica__author_not_admitted_any_more__keeps_none_of_its_records_in_memory() -> None:
    archive = MemoryArchive()
    replica = Replica(INVITED, archive, in_memory_max=2)
    replica.add_statement(claim(INVITED, 1, 1))
    for step in range(20):
        replica.add(seal(INVITED, 1, step))
        archive.store([seal(INVITED, 1, step)])
    digest = replica.state_digest()
    replica.add_statement(claim(INVITED, 1, 2))
    assert (replica.ledger.updates, replica.suspended, replica._kept) == (0, 20, {})
    replica.add_statement(admit(INVITED, 1))
    assert (replica.ledger.updates, replica.state_digest()) == (20, digest)


# --- an archive that does not give back what was stored

WRONG: dict[str, Callable[[bytes], list[bytes]]] = {
    "gone": lambda record: [],
    "another signature": lambda record: [record[:-1] + bytes([record[-1] ^ 1])],
    "another payload": lambda record: [seal(OPEN, 1, int.from_bytes(record[32:36], "big"), 99)],
    "two payloads": lambda record: [record, seal(OPEN, 1, int.from_bytes(record[32:36], "big"), 99)],
    "another step": lambda record: [record[:32] + (17).to_bytes(4, "big") + record[36:]],
}
LOOKS: dict[str, Callable[[Ledger], object]] = {
    "records": lambda ledger: list(ledger.slots.records(0, ALICE, bitmap_of([30]))),
    "all records": lambda ledger: list(ledger.slots.envelopes()),
    "payload hashes": lambda ledger: ledger.slots.payload_hashes(0, ALICE),
    "digest within": lambda ledger: digest_within(ledger, 0, ALICE, bitmap_of([30, 31])),
    "a copy": lambda ledger: ledger.add(seal(OPEN, 1, 30)),
    "a second payload": lambda ledger: ledger.add(seal(OPEN, 1, 30, 55)),
    "an exclusion": lambda ledger: ledger.add_statement(exclude(OPEN, 1, 20)),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("look", LOOKS)
def test_ledger__archive_changed__stops_with_what_and_where(look: str, wrong: str) -> None:
    ledger, archive = archived(100)
    (held,) = archive.slots[ALICE, 30]
    archive.slots[ALICE, 30] = WRONG[wrong](held)
    with pytest.raises(StorageDamagedError) as caught:
        LOOKS[look](ledger)
    text = f"updates of author {ALICE.hex()[:16]}, steps 16 to 31, are not what was stored"
    assert str(caught.value) == f"the archive is damaged ({text})"


def test_ledger__archive_changed_where_nobody_looks__serves_all_the_rest() -> None:
    ledger, archive = archived(100)
    archive.slots[ALICE, 30] = []
    rest = bitmap_of([step for step in range(100) if step // 16 != 1])
    assert len(list(ledger.slots.records(0, ALICE, rest))) == 84


def test_replica__stored_record_of_an_author_who_is_back_changed__is_damage() -> None:
    archive = MemoryArchive()
    replica = Replica(INVITED, archive)
    replica.add_statement(claim(INVITED, 1, 1))
    replica.add(seal(INVITED, 1, 3))
    archive.store([seal(INVITED, 1, 3)])
    replica.add_statement(claim(INVITED, 1, 2))
    archive.slots[ALICE, 3] = [seal(INVITED, 1, 3)[:-64] + bytes(64)]
    with pytest.raises(StorageDamagedError, match=r"a stored record: signature: step 3 of"):
        replica.add_statement(StatementCodec(INVITED).admit(OWNER, ALICE))


# --- the rule


def test_slots__copies_and_versions_in_any_number__are_what_a_ledger_holds() -> None:
    chance = random.Random(5)
    versions = [seal(OPEN, 1, step, scalar) for step in (3, 4, 1_030) for scalar in (1, 2)]
    for _ in range(50):
        stored = chance.choices(versions[:4], k=6)
        ledger = Ledger(OPEN)
        for record in stored:
            add(ledger, record)
        given = slots_in(stored)
        assert [given[offset] for offset in sorted(given)] == list(ledger.slots._slots_by_step())
