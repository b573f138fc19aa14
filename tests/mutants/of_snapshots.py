"""Bugs of snapshots: who vouches for one, and what becomes of it."""

from __future__ import annotations

from mutants.detectors import Tests
from mutants.mutant import Mutant
from mutants.patch import Edit

_TABLE, _PROOF, _SNAPSHOTS = "protocol.attestations", "protocol.snapshot_proof", "protocol.snapshots"
_SYNC = "protocol.sync"
_BYTES, _USE = "tests/test_protocol_snapshot.py", "tests/test_protocol_snapshot_use.py"

SNAPSHOTS = (
    Mutant(
        name="quorum-of-one",
        breaks="one author is enough to choose what joiners train on",
        edits=(Edit(_TABLE, "AttestationTable.agreed", "len(agreeing) >= authors_min and ", ""),),
        detector=Tests((f"{_BYTES}::test_quorum__three_of_three__agrees_and_two_do_not",)),
    ),
    Mutant(
        name="quorum-without-majority",
        breaks="three liars among many are enough",
        edits=(Edit(_TABLE, "AttestationTable.agreed", " and 2 * len(agreeing) > asked", ""),),
        detector=Tests((f"{_BYTES}::test_quorum__no_majority_of_those_who_attest__is_none",)),
    ),
    Mutant(
        name="proof-never-compared",
        breaks="a snapshot of the right set is taken for proved, whatever its coefficients",
        edits=(Edit(_PROOF, "judge", "if _is_same_state(snapshot, replica) else Verdict.UNEQUAL", ""),),
        detector=Tests((f"{_USE}::test_joiner__authors_lie_in_concert__halts_and_names_them",)),
    ),
    Mutant(
        name="signs-before-it-knows-its-own",
        breaks="a node with a snapshot signs before it has asked for its own rounds",
        edits=(
            Edit(_SNAPSHOTS, "Snapshots.may_train", "sync.has_own and ", ""),
            Edit(_SYNC, "SyncSession._compare", "yield from self._ask_for(self._own)", "pass"),
        ),
        detector=Tests((f"{_USE}::test_joiner__neighbour_holds_its_own_rounds__knows_them_before_it_signs",)),
    ),
)
