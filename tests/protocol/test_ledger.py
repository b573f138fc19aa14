"""The ledger is a function of a set: slots, verdicts, digests, whatever the order."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from protocol.crypto.keys import Signer
from protocol.errors import Ignore, IgnoreReason, Reject, RejectReason
from protocol.ledger.digest_buckets import bitmap_of, bits_of, shard_of
from protocol.ledger.envelope import EnvelopeCodec
from protocol.ledger.ledger import Ledger
from protocol.run.manifest import Manifest
from protocol.state.replica import Replica
from tests.support.ledgers import add, compare, digest_within, holdings_of, ledger_of, seal, signer
from tests.support.manifests import small_manifest

MANIFEST = small_manifest()
# Three authors, four steps in two epochs; author 1 equivocates twice (two and three versions), author 2 once.
POOL = [seal(MANIFEST, author, step) for author in range(3) for step in (0, 1, 17, 18)]
POOL += [seal(MANIFEST, 1, 0, 901), seal(MANIFEST, 1, 17, 902), seal(MANIFEST, 1, 17, 903), seal(MANIFEST, 2, 18, 904)]


def long_manifest() -> Manifest:
    """Two spans long."""
    return small_manifest(epoch_steps=512, clip=100, steps=2_048)


def ignored(ledger: Ledger, record: bytes, *, horizon_step: int | None = None) -> IgnoreReason:
    with pytest.raises(Ignore) as caught:
        ledger.add(record, horizon_step=horizon_step)
    return caught.value.reason


def is_void(ledger: Ledger, record: bytes, *, horizon_step: int | None = None) -> bool:
    """Whether the ledger takes the record as the second one for its slot."""
    _, voided = ledger.add(record, horizon_step=horizon_step)
    return voided is not None


@given(order=st.permutations(POOL), looks=st.sets(st.integers(0, len(POOL))))
def test_ledger__any_order_with_equivocations__same_root_state_and_counts(order: list[bytes], looks: set[int]) -> None:
    replica = Replica(MANIFEST)
    for index, record in enumerate(order):
        with suppress(Ignore):
            replica.add(record)
        if index in looks:
            replica.coefficients()
    expected = Replica(MANIFEST)
    for envelope in ledger_of(MANIFEST, POOL).slots.envelopes():
        expected.add(envelope.record)
    assert replica.ledger.root() == ledger_of(MANIFEST, POOL).root()
    assert replica.state_digest() == expected.state_digest() == replica.replayed_digest()
    assert (replica.ledger.updates, replica.ledger.void_slots) == (9, 3)
    assert replica.ledger.authors() == {signer(author).author: 18 for author in range(3)}


# So many slots of one author that most of them are hashed for good; two are void.
LONG = [seal(MANIFEST, 0, step) for step in range(30)] + [seal(MANIFEST, 0, 3, 901), seal(MANIFEST, 0, 28, 902)]


@given(order=st.permutations(LONG), looks=st.sets(st.integers(0, len(LONG))))
def test_ledger__many_slots_of_an_author_in_any_order__same_root_whenever_it_is_asked(
    order: list[bytes], looks: set[int]
) -> None:
    ledger = Ledger(MANIFEST)
    for index, record in enumerate(order):
        ledger.add(record)
        if index in looks:
            assert ledger.root() == ledger_of(MANIFEST, order[: index + 1]).root()
    assert ledger.root() == ledger_of(MANIFEST, LONG).root()


def test_ledger__holds__this_very_record_only_and_while_it_counts() -> None:
    record, other = seal(MANIFEST, 0, 1), seal(MANIFEST, 0, 1, 901)
    ledger = ledger_of(MANIFEST, [record])
    assert ledger.holds(record)
    assert not any(map(ledger.holds, (other, seal(MANIFEST, 0, 2), seal(MANIFEST, 1, 1), record[:-1] + b"?", b"")))
    ledger.add(other)
    assert not ledger.holds(record)


@given(order=st.permutations(POOL))
def test_ledger__while_it_grows__a_void_slot_stays_void(order: list[bytes]) -> None:
    ledger, void = Ledger(MANIFEST), 0
    for record in order:
        envelope = voided = None
        with suppress(Ignore):
            envelope, voided = ledger.add(record)
        assert ledger.void_slots == void + (voided is not None)
        void = ledger.void_slots
        is_accepted = envelope is not None and voided is None
        assert ignored(ledger, record) is (IgnoreReason.ALREADY_HELD if is_accepted else IgnoreReason.SLOT_VOID)
        if envelope is not None and voided is not None:
            assert voided.payload != envelope.payload
            assert ignored(ledger, voided.record) is IgnoreReason.SLOT_VOID
    assert all(ignored(ledger, record) for record in POOL)


def test_ledger__equivocation__gives_the_pair_and_takes_the_first_out() -> None:
    first, second = seal(MANIFEST, 0, 3, 5), seal(MANIFEST, 0, 3, 6)
    ledger = Ledger(MANIFEST)
    ledger.add(first)
    envelope, voided = ledger.add(second)
    assert voided is not None and (voided.record, envelope.record) == (first, second)
    assert (ledger.updates, ledger.void_slots, list(ledger.slots.envelopes())) == (0, 1, [])
    author = signer(0).author
    assert ledger.authors() == {author: 3} and ledger.highest_step(author) == 3
    assert set(ledger.slots.records(0, author, bitmap_of([3]))) == {first, second}
    assert ledger.slots.payload_hashes(0, author) == {}


def test_ledger__second_payload_with_a_bad_signature__voids_nothing() -> None:
    ledger = ledger_of(MANIFEST, [seal(MANIFEST, 0, 3, 5)])
    forged = seal(MANIFEST, 0, 3, 6)[:-64] + bytes(64)
    with pytest.raises(Reject) as caught:
        ledger.add(forged)
    assert caught.value.reason is RejectReason.SIGNATURE
    assert (ledger.updates, ledger.void_slots) == (1, 0)


def test_ledger__beyond_the_horizon__is_ignored_unless_it_proves_equivocation() -> None:
    ledger = Ledger(MANIFEST)
    assert ignored(ledger, seal(MANIFEST, 0, 11), horizon_step=10) is IgnoreReason.TOO_EARLY
    assert not is_void(ledger, seal(MANIFEST, 0, 10), horizon_step=10)
    assert not is_void(ledger, seal(MANIFEST, 0, 11))
    assert is_void(ledger, seal(MANIFEST, 0, 11, 5), horizon_step=10)


def test_ledger__too_early_garbage__costs_no_signature_check(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[object] = []
    monkeypatch.setattr(EnvelopeCodec, "check_signed", lambda self, envelope: checks.append(envelope))
    forged = seal(MANIFEST, 0, 30)[:-64] + bytes(64)
    assert ignored(Ledger(MANIFEST), forged, horizon_step=10) is IgnoreReason.TOO_EARLY
    assert not checks


def test_ledger__author_table_full__ignores_new_authors_and_still_serves_known_ones() -> None:
    manifest = small_manifest(authors_max=2)
    ledger = ledger_of(manifest, [seal(manifest, author, 0) for author in (0, 1)])
    assert ignored(ledger, seal(manifest, 2, 0)) is IgnoreReason.AUTHORS_FULL
    assert not is_void(ledger, seal(manifest, 1, 1))
    assert is_void(ledger, seal(manifest, 1, 1, 9))
    assert [ledger.has_room_for(signer(author).author) for author in (0, 1, 2)] == [True, True, False]


def test_ledger__rejected_records__leave_no_trace() -> None:
    ledger = ledger_of(MANIFEST, POOL)
    before = (ledger.root(), ledger.updates, ledger.authors(), ledger.slots.span_digests())
    for record in POOL:
        for bad in (record[:-1], record[:-64] + bytes(64), bytes(len(record)), record[:32] + b"\xff" + record[33:]):
            with pytest.raises((Reject, Ignore)):
                ledger.add(bad)
    assert (ledger.root(), ledger.updates, ledger.authors(), ledger.slots.span_digests()) == before


# --- digests


def test_digests__examples_of_the_specification__are_equal() -> None:
    ledger, key = Ledger(MANIFEST), Signer(bytes(32))
    assert ledger.root().hex() == "a896c7e907e542b6d2583bc1dea2f5260b47d003033b04bc167f66657ade3015"
    ledger.add(ledger.codec.seal(key, 7, (-300,)).record)
    assert ledger.slots.payload_hashes(0, key.author) == {7: bytes.fromhex("4eac6bdfb56944f2")}
    assert holdings_of(ledger, 0, key.author).digest.hex() == "9f4ffe8219ccec4f6f61633da62fd02e"
    assert ledger.slots.shard_digests(0) == [(180, bytes.fromhex("337380a151294accd4958e9caf1aafe3"))]
    assert shard_of(key.author) == 180
    assert ledger.slots.span_digests() == [(0, bytes.fromhex("b25b8c10962085a185a5f2bba13a1874"))]
    assert ledger.root().hex() == "b3f2ee5e594089423699d0b76cce96697bc70b1774839a3cdcdc0ddfe7dac93c"
    ledger.add(ledger.codec.seal(key, 7, (5,)).record)
    assert holdings_of(ledger, 0, key.author).digest.hex() == "8c80b05cbd8041603da4e8e7a0b0be05"
    assert ledger.root().hex() == "df14b9bc204b927db554be650bd681cdb5bb7975336ea16f2937adf60a042bf4"


def test_root__any_single_difference__differs() -> None:
    base = [seal(MANIFEST, author, step) for author in range(3) for step in range(4)]
    variants = {
        "same": base,
        "one missing": base[1:],
        "one more": [*base, seal(MANIFEST, 0, 4)],
        "other payload": [seal(MANIFEST, 0, 0, 77), *base[1:]],
        "void": [*base, seal(MANIFEST, 0, 0, 77)],
        "other author": [seal(MANIFEST, 3, 0), *base[1:]],
    }
    roots = {name: ledger_of(MANIFEST, records).root() for name, records in variants.items()}
    assert len(set(roots.values())) == len(variants)
    assert roots["void"] == ledger_of(MANIFEST, [*variants["other payload"], base[0]]).root()
    assert roots["void"] == ledger_of(MANIFEST, [*variants["void"], seal(MANIFEST, 0, 0, 78)]).root()


def test_root__an_author_said_two_things__halves_that_heard_one_each_differ() -> None:
    """Equal slots count in both. If digests looked at no more, the halves would compare as equal and never void it."""
    said, said_elsewhere = seal(MANIFEST, 1, 5, 10), seal(MANIFEST, 1, 5, -10)
    here, there = Ledger(MANIFEST), Ledger(MANIFEST)
    here.add(said)
    there.add(said_elsewhere)
    holdings = [holdings_of(each, 0, signer(1).author) for each in (here, there)]
    assert holdings[0].valid == holdings[1].valid and holdings[0].digest != holdings[1].digest
    assert here.root() != there.root()
    compare(here, there)
    compare(there, here)
    assert here.root() == there.root() and here.void_slots == there.void_slots == 1 and here.updates == 0


def test_root__asked_between_additions__is_never_stale() -> None:
    manifest = long_manifest()
    ledger, held = Ledger(manifest), []
    for step in (0, 1_023, 1_024, 2_047, 5):
        held.append(seal(manifest, 0, step))
        ledger.add(held[-1])
        assert ledger.root() == ledger_of(manifest, list(reversed(held))).root()
    assert [span for span, _ in ledger.slots.span_digests()] == [0, 1]


def test_digest_within__slots_left_out__equals_a_ledger_without_them() -> None:
    records = [seal(MANIFEST, 0, step) for step in range(6)] + [seal(MANIFEST, 0, 5, 9)]
    whole, part = ledger_of(MANIFEST, records), ledger_of(MANIFEST, [*records[1:3], *records[5:]])
    held = holdings_of(part, 0, signer(0).author)
    assert digest_within(whole, 0, signer(0).author, bitmap_of([1, 2, 5])) == held.digest
    assert digest_within(whole, 0, signer(0).author, bitmap_of([1, 2, 4])) != held.digest


def test_holdings__bitmaps__say_what_counts_and_what_is_void() -> None:
    manifest = long_manifest()
    ledger = ledger_of(manifest, [seal(manifest, 0, step) for step in (1_024, 1_027, 2_047)])
    add(ledger, seal(manifest, 0, 1_027, 5))
    held = holdings_of(ledger, 1, signer(0).author)
    assert (held.valid, held.void) == (bitmap_of([0, 1_023]), bitmap_of([3]))
    valid = bits_of(int.from_bytes(held.valid, "little"))
    assert [index in valid for index in (0, 1, 3, 1_023)] == [True, False, False, True]
    assert held.valid[0] == 1 and held.valid[127] == 128
    assert holdings_of(ledger, 0, signer(0).author).valid == bytes(128)


def test_holdings__in_pages__give_every_author_once() -> None:
    ledger = ledger_of(MANIFEST, [seal(MANIFEST, author, 0) for author in range(20)])
    every = frozenset(range(256))
    authors, after = [], bytes(32)
    while page := ledger.slots.holdings(0, every, after, 3):
        assert len(page) <= 3
        authors += [entry.author for entry in page]
        after = authors[-1]
    assert authors == sorted(signer(author).author for author in range(20))
    shards = [shard_of(author) for author in authors]
    some = frozenset(shards[:4])
    assert [e.author for e in ledger.slots.holdings(0, some, bytes(32), 99)] == [
        a for a, s in zip(authors, shards, strict=True) if s in some
    ]


def test_envelopes__of_several_spans_and_authors__come_by_step_and_author() -> None:
    manifest = long_manifest()
    records = [seal(manifest, author, step) for step in (1_500, 3, 1_024, 0) for author in (2, 0, 1)]
    found = [(e.step, e.author) for e in ledger_of(manifest, records).slots.envelopes()]
    assert found == sorted(found) and len(found) == 12
