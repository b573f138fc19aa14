"""Bugs of what leaves memory, and of what is read back."""

from __future__ import annotations

from tests.mutants.detectors import Simulation, Tests
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_BUCKETS = "protocol.ledger.digest_buckets"
_TESTS = "tests/protocol/test_record_store.py::"

ARCHIVE = (
    Mutant(
        name="forgotten-before-it-is-stored",
        breaks="a record leaves the memory although the archive does not give it back yet",
        edits=(Edit(_BUCKETS, "Bucket.forget", "if given.get(offset) != self._slots[offset]]", "if False]"),),
        detector=Tests((_TESTS + "test_ledger__nothing_stored__forgets_nothing_and_does_not_ask_for_each_record",)),
    ),
    Mutant(
        name="nothing-is-forgotten",
        breaks="what the archive gives back stays in memory all the same",
        edits=(Edit(_BUCKETS, "Bucket.forget", "if given.get(offset) != self._slots[offset]]", "if True]"),),
        detector=Tests((_TESTS + "test_ledger__that_grows__keeps_the_latest_records_only",)),
    ),
    Mutant(
        name="digest-of-what-is-in-memory",
        breaks="after a late slot a bucket is hashed over the records that happen to be in memory",
        edits=(
            Edit(
                _BUCKETS,
                "Bucket.digest",
                "self._hasher_within(self.held)",
                "self._hasher_over(sorted(self._slots.items()))",
            ),
        ),
        detector=Simulation("equal sets with different roots"),
    ),
    Mutant(
        name="base-kept-when-a-slot-below-it-changes",
        breaks="what is hashed once and for all is not hashed anew when one of its slots is filled late, or void",
        edits=(Edit(_BUCKETS, "Bucket.put", "if offset <= self._base_to:", "if False:"),),
        detector=Simulation("roots"),
    ),
    Mutant(
        name="resting-digest-not-renewed",
        breaks="a span that was left behind keeps its digest when a slot of it is filled late, or becomes void",
        edits=(Edit(_BUCKETS, "Bucket.put", "    self._resting = None\n", ""),),
        detector=Tests((_TESTS + "test_ledger__span_left_behind__keeps_a_digest_and_no_hasher",)),
    ),
    Mutant(
        name="void-slot-counts-again",
        breaks="the bitmap of what counts keeps a slot that has become void",
        edits=(Edit(_BUCKETS, "Bucket.put", "self.valid &= ~bit", "pass"),),
        detector=Simulation("an honest node was cut off"),
    ),
    Mutant(
        name="sums-keep-what-was-dropped",
        breaks="what an excluded author loses stays in the sums: the rest of its records seems damaged",
        edits=(Edit(_BUCKETS, "Bucket.drop_from", "self._checks.remove(each, slot)", "pass"),),
        detector=Simulation("are not what was stored"),
    ),
    Mutant(
        name="read-back-unchecked",
        breaks="what the archive gives back is served as it is: a flipped bit makes an honest node a liar",
        edits=(
            Edit(
                _BUCKETS,
                "Bucket._read",
                "if not missing.isdisjoint(group) or not self._checks.fits(group, slots):",
                "if not missing.isdisjoint(group):",
            ),
        ),
        detector=Tests((_TESTS + "test_ledger__archive_changed__stops_with_what_and_where",)),
    ),
    Mutant(
        name="waiting-without-bound",
        breaks="a joiner that receives faster than it sums keeps every record that waits",
        edits=(
            Edit("protocol.state.replica", "Replica.add", "if len(self._to_add) > self._waiting_max:", "if False:"),
        ),
        detector=Tests((_TESTS + "test_replica__joiner_that_sums_slowly__waits_with_a_bounded_number",)),
    ),
)
