"""Bugs of snapshots: who vouches for one, and what becomes of it."""

from __future__ import annotations

from tests.mutants.detectors import Simulation, Tests, Vectors
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_REPLICA, _TABLE, _PROOF, _SNAPSHOTS = (
    "protocol.state.replica",
    "protocol.node.snapshot_agreement",
    "protocol.state.snapshot_proof",
    "protocol.node.snapshots",
)
_SYNC, _OVERLAY = "protocol.sync.anti_entropy", "protocol.state.snapshot"
_BYTES, _USE = "tests/protocol/test_snapshot.py", "tests/protocol/test_snapshot_use.py"
_UNTIL_ALL = "uses_the_snapshot_until_all_has_come"

SNAPSHOTS = (
    Mutant(
        name="quorum-of-one",
        breaks="one author is enough to choose what joiners train on",
        edits=(Edit(_TABLE, "AttestationTable.agreed", "agreeing[claim] >= authors_min and ", ""),),
        detector=Tests((f"{_BYTES}::test_quorum__three_of_three__agrees_and_two_do_not",)),
    ),
    Mutant(
        name="quorum-without-majority",
        breaks="three liars among many are enough",
        edits=(Edit(_TABLE, "AttestationTable.agreed", " and 2 * agreeing[claim] > asked", ""),),
        detector=Tests((f"{_BYTES}::test_quorum__no_majority_of_those_who_attest__is_none",)),
    ),
    Mutant(
        name="one-table-for-all-tellers",
        breaks="while nobody is known yet, one neighbour's made-up authors take the room of all others",
        edits=(
            Edit(_TABLE, "AttestationTable.add", "self._told.setdefault(teller, {})", "self._told.setdefault('', {})"),
            Edit(_TABLE, "AttestationTable._has_room", "self._told[teller]", "self._told['']"),
        ),
        detector=Tests((f"{_BYTES}::test_joiner__neighbour_tells_of_made_up_authors__crowds_nobody_out",)),
    ),
    Mutant(
        name="told-by-another-is-told",
        breaks="what a liar tells first, and takes along when it leaves, is not kept of the next who tells it",
        edits=(Edit(_TABLE, "AttestationTable.add", "if teller else known", "if False else known"),),
        detector=Tests(
            (f"{_BYTES}::test_joiner__liar_tells_of_the_authors_first_and_leaves__those_told_by_others_stay",)
        ),
    ),
    Mutant(
        name="room-made-in-another-table",
        breaks="an attestation that finds room because an excluded author gives way is told to all, and not kept",
        edits=(
            Edit(
                _TABLE,
                "AttestationTable._has_room",
                "del self._newest[author]",
                "self._newest = {each: held for each, held in self._newest.items() if each != author}",
            ),
        ),
        detector=Vectors(("attestations.json",)),
    ),
    Mutant(
        name="proof-never-compared",
        breaks="a snapshot of the right set is taken for proved, whatever its coefficients",
        edits=(Edit(_PROOF, "judge", "if is_same else ProofVerdict.UNEQUAL", ""),),
        detector=Tests((f"{_USE}::test_joiner__authors_lie_in_concert__halts_and_names_them",)),
    ),
    Mutant(
        name="own-key-first-only-while-sought",
        breaks="a session that begins once the snapshot is there leaves the own key for its turn: the first step waits "
        "for the whole replay",
        edits=(Edit(_SNAPSHOTS, "Snapshots.author_sought", "if is_used or self", "if self"),),
        detector=Tests(
            (
                f"{_USE}::test_joiner__session_breaks_after_the_snapshot_came__"
                "next_one_asks_for_its_own_rounds_first_too",
            )
        ),
    ),
    Mutant(
        name="signs-before-it-knows-its-own",
        breaks="a node with a snapshot signs before it has asked for its own rounds",
        edits=(
            Edit(_SNAPSHOTS, "Snapshots.may_train", "self._sync.has_own and ", ""),
            Edit(_SYNC, "SyncSession._compare", "yield from self._ask_for(self._own)", "pass"),
        ),
        detector=Tests((f"{_USE}::test_joiner__neighbour_holds_its_own_rounds__knows_them_before_it_signs",)),
    ),
    Mutant(
        name="snapshot-dropped-in-mid-replay",
        breaks="a replay of more than a minute loses its snapshot, where a neighbour that holds nothing makes it live",
        edits=(Edit(_SNAPSHOTS, "Snapshots._prove", " or held != self._held", ""),),
        detector=Tests((f"{_USE}::test_joiner__neighbour_with_nothing_makes_it_live_in_mid_replay__{_UNTIL_ALL}",)),
    ),
    Mutant(
        name="snapshot-taken-for-right",
        breaks="once the replay is through, a snapshot is proved, whatever the replay says",
        edits=(Edit(_SNAPSHOTS, "Snapshots._prove", "judge(snapshot, self._replica)", "ProofVerdict.EQUAL"),),
        detector=Simulation("was taken for proved"),
    ),
    Mutant(
        name="trains-on-the-snapshot-at-once",
        breaks="a joiner begins a step before its own rounds, and those that follow the snapshot, were asked for",
        edits=(
            Edit(
                _SNAPSHOTS,
                "Snapshots.may_train",
                "return self._sync.has_own and self._sync.has_compared_from(snapshot.step)",
                "return True",
            ),
        ),
        detector=Simulation("a step was begun on a snapshot before"),
    ),
    Mutant(
        name="any-file-is-the-snapshot",
        breaks="whatever file a neighbour serves is shown to the worker",
        edits=(Edit(_SNAPSHOTS, "Snapshots.show", "not agreed or agreed[0].sha256 != sha256", "not agreed"),),
        detector=Simulation("a snapshot is used that nobody has made", first=98, seeds=8),
    ),
    Mutant(
        name="covered-updates-shown-twice",
        breaks="what the snapshot covers is summed on top of it as the replay brings it",
        edits=(Edit(_OVERLAY, "SnapshotOverlay._is_later", "update.step >= self.snapshot.step", "True"),),
        detector=Simulation("the worker is shown another state"),
    ),
    Mutant(
        name="digest-of-what-is-shown",
        breaks="the snapshot in use gets into the state digest",
        edits=(Edit(_REPLICA, "Replica.state_digest", "self.coefficients()", "self.shown()"),),
        detector=Simulation("with a snapshot in use the state is not", first=112, seeds=8),
    ),
)
