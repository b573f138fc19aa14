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
        breaks="after a late slot a group is hashed over the records that happen to be in memory",
        edits=(
            Edit(
                _BUCKETS,
                "Bucket.put",
                "self.by_step(_bits_in(group_of(offset)))",
                "((each, held) for each, held in self._slots.items() if each in group_of(offset))",
            ),
        ),
        detector=Simulation("equal sets with different roots"),
    ),
    Mutant(
        name="group-at-hand-outlives-a-change",
        breaks="what was read back last is given again after a slot of it has changed",
        edits=(Edit(_BUCKETS, "Bucket.put", "self._archive.group = None", "pass"),),
        detector=Tests(
            (_TESTS + "test_ledger__old_slots_become_void_one_after_the_other__each_sees_what_became_of_the_last",)
        ),
    ),
    Mutant(
        name="bucket-digest-not-renewed",
        breaks="a bucket keeps its digest when one of its slots is filled, or becomes void",
        edits=(Edit(_BUCKETS, "Bucket._set_group", "self._digest = None", "pass"),),
        detector=Tests((_TESTS + "test_ledger__slot_of_a_span_left_behind__costs_reading_one_group_back",)),
    ),
    Mutant(
        name="excluded-slots-stay-in-their-group",
        breaks="the groups of an excluded author are not hashed anew: their digests cover what counts no more",
        edits=(Edit(_BUCKETS, "Bucket.drop_from", "self._groups_within(kept), None", "self._groups, None"),),
        detector=Tests(("tests/properties/test_digest_buckets.py",)),
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
        edits=(Edit("protocol.state.replica", "Replica.add", "if self.unsummed > self._waiting_max:", "if False:"),),
        detector=Tests((_TESTS + "test_replica__joiner_that_sums_slowly__waits_with_a_bounded_number",)),
    ),
)
