"""A bucket's digests are those of the specification, computed from nothing, whatever came before in whatever order."""

from __future__ import annotations

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from protocol.crypto import SIGNATURE_BYTES, hashing
from protocol.ledger.archived_records import ReadBack, Slot
from protocol.ledger.digest_buckets import Bucket
from tests.properties.plain_model import bucket_digest
from tests.support.ledgers import MemoryArchive, seal, signer
from tests.support.manifests import small_manifest

RUN = small_manifest(steps=4_096)
SPAN = 1
AUTHOR = signer(1).author
OFFSETS = st.sampled_from((0, 1, 14, 15, 16, 17, 31, 32, 500, 511, 1_007, 1_008, 1_023))


def record_of(offset: int, scalar: int) -> bytes:
    """One of two payloads of a slot."""
    return seal(RUN, 1, SPAN * 1_024 + offset, scalar)


class BucketMachine(RuleBasedStateMachine):
    """A bucket beside a plain mapping of slots."""

    def __init__(self) -> None:
        super().__init__()
        self.archive = MemoryArchive()
        self.bucket = Bucket(SPAN, AUTHOR, ReadBack(self.archive))
        self.slots: dict[int, Slot] = {}

    @rule(offset=OFFSETS)
    def fill_or_void(self, offset: int) -> None:
        """A void slot stays as it is."""
        held = self.slots.get(offset)
        assert self.bucket.get(offset) == held
        if isinstance(held, tuple):
            return
        record = record_of(offset, 1 if held is None else 2)
        self.slots[offset] = record if held is None else (held, record)
        self.bucket.put(offset, self.slots[offset])
        self.archive.store([record])

    @rule(offsets=st.sets(OFFSETS))
    def forget(self, offsets: set[int]) -> None:
        self.bucket.forget(offsets)

    @rule(offset=OFFSETS)
    def drop(self, offset: int) -> None:
        dropped = [slot for each, slot in sorted(self.slots.items()) if each >= offset]
        assert self.bucket.drop_from(offset) == dropped
        self.slots = {each: slot for each, slot in self.slots.items() if each < offset}
        self.archive = MemoryArchive(
            [part for each in self.slots.values() for part in (each if isinstance(each, tuple) else (each,))]
        )
        self.bucket._archive = ReadBack(self.archive)

    @rule(offsets=st.sets(OFFSETS))
    def look_within(self, offsets: set[int]) -> None:
        steps = sum(1 << offset for offset in offsets)
        assert self.bucket.digest_within(steps) == self.expected(set(offsets))

    @invariant()
    def digest_is_that_of_the_slots(self) -> None:
        assert self.bucket.digest() == self.expected(set(self.slots))

    def expected(self, offsets: set[int]) -> bytes:
        """From the slots at these offsets alone."""
        fields = {
            offset: hashing.u32(SPAN * 1_024 + offset) if isinstance(slot, tuple) else slot[:-SIGNATURE_BYTES]
            for offset, slot in self.slots.items()
            if offset in offsets
        }
        return bucket_digest(SPAN, AUTHOR, fields)


def test_bucket__slots_filled_voided_forgotten_and_dropped__has_the_digests_of_the_specification() -> None:
    run_state_machine_as_test(BucketMachine, settings=settings(max_examples=100, stateful_step_count=30))
