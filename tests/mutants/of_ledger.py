"""Bugs of the ledger: slots, digests, the door in."""

from __future__ import annotations

from tests.mutants.detectors import HashSeeds, Simulation, Tests, Vectors
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_LEDGER = "protocol.ledger.ledger"
_BUCKETS = "protocol.ledger.digest_buckets"

SLOTS = (
    Mutant(
        name="first-seen-wins",
        breaks="a second payload for a slot is ignored: nodes keep whichever they saw first",
        edits=(
            Edit(
                _LEDGER,
                "Ledger._held",
                "    return slot\n",
                "    if slot is not None:\n"
                "        raise Ignore(IgnoreReason.SLOT_VOID, 'the first one counts')\n"
                "    return slot\n",
            ),
        ),
        detector=Simulation("no agreement"),
    ),
    Mutant(
        name="smallest-payload-wins",
        breaks="of two payloads the smaller one counts, where both must be kept and neither may count",
        edits=(
            Edit(
                _LEDGER,
                "Ledger.add",
                "    self.roster.check_counts(envelope.author, envelope.step)\n",
                "    if held is not None and held < envelope.record:\n"
                "        raise Ignore(IgnoreReason.SLOT_VOID, 'a smaller one is held')\n"
                "    self.roster.check_counts(envelope.author, envelope.step)\n",
            ),
            Edit("protocol.ledger.slot_table", "SlotTable.put", "if held is None else (held, envelope.record)", ""),
        ),
        detector=Simulation("third payload"),
    ),
    Mutant(
        name="third-payload-counts",
        breaks="a void slot is taken for an empty one when a third payload comes",
        edits=(
            Edit(
                _LEDGER,
                "Ledger._held",
                "    if bucket.void >> offset & 1:\n",
                "    if bucket.void >> offset & 1 and envelope.record not in bucket.get(offset):\n"
                "        return None\n"
                "    if bucket.void >> offset & 1:\n",
            ),
        ),
        detector=Simulation("a third payload was stored"),
    ),
    Mutant(
        name="void-keeps-the-first",
        breaks="voiding a slot does not take the first payload's integers back out",
        edits=(Edit("protocol.state.replica", "Replica.add", "self._waiting.remove(voided.record)", "pass"),),
        detector=Simulation("equal ledgers with different state digests"),
    ),
    Mutant(
        name="void-takes-out-the-second",
        breaks="voiding subtracts the second payload, which was never added, in place of the first",
        edits=(Edit("protocol.state.replica", "Replica.add", "voided.record", "envelope.record"),),
        detector=Simulation("equal ledgers with different state digests"),
    ),
    Mutant(
        name="void-is-subtracted-twice",
        breaks="what was taken out is taken out again at the next look at the state",
        edits=(
            Edit("protocol.state.replica", "Replica.sum_some", "self._decoded(removed)", "self._decoded(removed * 2)"),
        ),
        detector=Simulation("equal ledgers with different state digests"),
    ),
    Mutant(
        name="author-table-without-bound",
        breaks="every new key is taken in: keys cost nothing",
        edits=(Edit(_LEDGER, "Ledger.has_room_for", "len(self._highest) < self.authors_max", "True"),),
        detector=Vectors(("ledgers.json",)),
    ),
    Mutant(
        name="too-early-is-a-rejection",
        breaks="a record from beyond the horizon cuts off the honest neighbour that relays it",
        edits=(
            Edit(
                _LEDGER,
                "Ledger.add",
                "        raise Ignore(IgnoreReason.TOO_EARLY,",
                "        from protocol.errors import Reject, RejectReason\n"
                "        raise Reject(RejectReason.STEP_RANGE,",
            ),
        ),
        detector=Simulation("an honest node was cut off"),
    ),
    Mutant(
        name="signature-before-duplicate",
        breaks="the signature is verified before it is looked up whether the record is held: copies cost 45 us each",
        edits=(
            Edit(
                _LEDGER,
                "Ledger.add",
                "    held = self._held(envelope)\n",
                "    self.codec.check_signed(envelope)\n    held = self._held(envelope)\n",
            ),
        ),
        detector=Simulation("signatures were verified for"),
    ),
)

DIGESTS = (
    Mutant(
        name="void-digest-covers-the-pair",
        breaks="a void slot is hashed with the two records kept, and which two depends on the order of arrival",
        edits=(
            Edit(
                _BUCKETS,
                "Bucket._linked",
                "else hashing.u32(self._step(offset))",
                "else b''.join(record[:-SIGNATURE_BYTES] for record in slot)",
            ),
        ),
        detector=Simulation("equal sets with different roots"),
    ),
    Mutant(
        name="digest-without-void-slots",
        breaks="void slots are left out of the digests: a node that lacks the proof seems equal",
        edits=(
            Edit(
                _BUCKETS,
                "Bucket._linked",
                "    field = ",
                "    if not isinstance(slot, bytes):\n        return digest\n    field = ",
            ),
        ),
        detector=Simulation("different sets with equal roots"),
    ),
    Mutant(
        name="digest-over-steps-only",
        breaks="buckets are hashed over which slots count, not over what is in them: two payloads look alike",
        edits=(
            Edit(
                _BUCKETS,
                "Bucket._linked",
                "slot[:-SIGNATURE_BYTES] if isinstance(slot, bytes) else",
                "b'counts' + hashing.u32(offset) if isinstance(slot, bytes) else",
            ),
        ),
        detector=Tests(
            ("tests/protocol/test_ledger.py::test_root__an_author_said_two_things__halves_that_heard_one_each_differ",)
        ),
    ),
    Mutant(
        name="late-slot-hashed-last",
        breaks="a group's chain goes on when a slot comes late: it depends on the order of arrival",
        edits=(Edit(_BUCKETS, "Bucket.put", "offset >= self.held.bit_length()", "not isinstance(slot, tuple)"),),
        detector=Simulation("equal sets with different roots"),
    ),
    Mutant(
        name="shard-digest-not-renewed",
        breaks="the cached digest of a shard is kept when a record comes",
        edits=(Edit(_BUCKETS, "Span.put", "    self._shard_digests.pop(shard, None)\n", ""),),
        detector=Simulation("equal ledgers with different state digests"),
    ),
    Mutant(
        name="root-not-renewed-by-a-void",
        breaks="the cached root is kept when a slot becomes void",
        edits=(Edit(_LEDGER, "Ledger._put", "self._root = None", "self._root = self._root if held else None"),),
        detector=Simulation("equal ledgers with different state digests"),
    ),
    Mutant(
        name="shards-in-order-of-arrival",
        breaks="the digests of shards are listed and hashed in the order in which their first records came",
        edits=(
            Edit(
                _BUCKETS, "Span.shard_digests", "sorted(self._shard_digests.items())", "[*self._shard_digests.items()]"
            ),
        ),
        detector=Simulation("not in ascending order"),
    ),
    Mutant(
        name="shards-in-order-of-a-set",
        breaks="the digests of shards are hashed in the order of a set: another one in each process",
        edits=(Edit(_BUCKETS, "Span.digest", "in self.shard_digests()", "in frozenset(self.shard_digests())"),),
        detector=HashSeeds(),
    ),
)
