"""Bugs of admission: statements, the roster, and what the ledger does by them."""

from __future__ import annotations

from tests.mutants.detectors import Simulation, Tests, Vectors
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_LEDGER, _ROSTER, _STATEMENTS = "protocol.ledger.ledger", "protocol.ledger.roster", "protocol.ledger.statements"
_INTAKE, _OWN = "protocol.node.intake", "protocol.node.own_steps"
_REPLICA, _SYNC = "protocol.state.replica", "protocol.sync.anti_entropy"
_TESTS = "tests/protocol/test_statements.py"

ADMISSION = (
    Mutant(
        name="open-run-unsaid",
        breaks="a node listens for strangers in an open run, and nobody is told what that means",
        edits=(Edit("sfnode.node.join_preparation", "_warn_of_open_run", "and is_reachable", "and False"),),
        detector=Tests(("tests/cli/test_admission.py::test_join__open_run_at_a_public_address__is_warned_of",)),
    ),
    Mutant(
        name="owner-left-outside",
        breaks="`init` makes a run by invitation and no invitation: the owner's own node cannot train",
        edits=(
            Edit("sfnode.cli.init", "_write_invitation", "manifest.admission.kind is not AdmissionKind.INVITE", "True"),
        ),
        detector=Tests(
            ("tests/cli/test_admission.py::test_init__nothing_said__is_by_invitation_with_one_for_the_owners_node",)
        ),
    ),
    Mutant(
        name="exclusion-keeps-the-sum",
        breaks="an excluded author's updates leave the ledger and stay in the model",
        edits=(Edit(_REPLICA, "Replica.add_statement", "if isinstance(slot, bytes)]", "if False]"),),
        detector=Simulation("equal ledgers with different state digests"),
    ),
    Mutant(
        name="exclusion-of-the-future-only",
        breaks="an exclusion keeps later updates out and leaves those that are held",
        edits=(Edit(_LEDGER, "Ledger._drop_what_counts_no_more", "self.highest_step(author) < first", "True"),),
        detector=Simulation("the ledger holds other records than were stored"),
    ),
    Mutant(
        name="excluded-record-comes-back",
        breaks="what was taken out is taken in again from the next neighbour that still has it",
        edits=(Edit(_LEDGER, "Ledger.add", "    self.roster.check_counts(envelope.author, envelope.step)\n", ""),),
        detector=Simulation("its author is excluded"),
    ),
    Mutant(
        name="last-exclusion-holds",
        breaks="of several exclusions the one that came last holds: the order of arrival matters",
        edits=(
            Edit(
                _ROSTER,
                "Roster.covers",
                "held[0].from_step <= statement.from_step",
                "held[0].from_step == statement.from_step",
            ),
        ),
        detector=Simulation("an exclusion was stored that says nothing new"),
    ),
    Mutant(
        name="statements-left-out-of-the-root",
        breaks="nodes with other statements and the same records never compare them",
        edits=(Edit(_LEDGER, "Ledger.root", "if len(self.roster) else []", "if False else []"),),
        detector=Simulation("different sets with equal roots"),
    ),
    Mutant(
        name="statements-never-asked-for",
        breaks="a statement that was not flooded to a node never comes",
        edits=(Edit(_SYNC, "SyncSession._compare", "        yield from self._fetch_statements()\n", "        pass\n"),),
        detector=Simulation("no agreement"),
    ),
    Mutant(
        name="statement-not-stored",
        breaks="a node forgets the owner's statements at its next start",
        edits=(
            Edit(
                _INTAKE,
                "Intake._keep_statements",
                "    self._turn.do([StoreStatements(statements=tuple(statement.data for statement in fresh))])\n",
                "",
            ),
        ),
        detector=Simulation("equal sets with different roots"),
    ),
    Mutant(
        name="not-admitted-is-a-rejection",
        breaks="a record whose author's admission has not come yet cuts off the honest neighbour that relays it",
        edits=(
            Edit(
                _ROSTER,
                "Roster.check_counts",
                "raise Ignore(IgnoreReason.NOT_ADMITTED,",
                "from protocol.errors import Reject, RejectReason\n        raise Reject(RejectReason.AUTHOR_KEY,",
            ),
        ),
        detector=Simulation("an honest node was cut off"),
    ),
    Mutant(
        name="trains-without-admission",
        breaks="a node that may not contribute measures and signs all the same",
        edits=(
            Edit(_OWN, "OwnSteps.may_contribute", " and self.is_admitted_for(self._clock.next_step)", ""),
            Edit(_OWN, "OwnSteps.finish", "is_taken or not self.is_admitted_for(step) or", "is_taken or"),
        ),
        detector=Tests(("tests/protocol/test_node_admission.py",)),
    ),
    Mutant(
        name="follower-finished-too-soon",
        breaks="a node that contributes nothing calls the run over before it has caught up",
        edits=(Edit(_OWN, "OwnSteps.is_finished", " or not (self._sync.is_live or self._sync.peers == 0)", ""),),
        detector=Tests(("tests/protocol/test_node_admission.py",)),
    ),
    Mutant(
        name="excluded-records-still-sent",
        breaks="what was excluded while it waited in a queue is told on",
        edits=(Edit(_INTAKE, "Intake._keep_statements", "    self._flood.keep(ledger.counts)\n", ""),),
        detector=Tests(("tests/protocol/test_node_admission.py",)),
    ),
    Mutant(
        name="anybody-signs-for-the-owner",
        breaks="the owner's signature under a statement is not verified",
        edits=(
            Edit(
                _STATEMENTS,
                "StatementCodec.check_signed",
                " or not is_signed(self._owner, self._prefix + data[:signed_bytes], owners)",
                "",
            ),
        ),
        detector=Vectors(("statements.json",)),
    ),
    Mutant(
        name="statement-of-any-run",
        breaks="what the owner signs does not name the run: a statement of one run holds in another of the same owner",
        edits=(Edit(_STATEMENTS, "StatementCodec.__init__", "_SIGNED_TAG + manifest.run_id", "_SIGNED_TAG"),),
        detector=Vectors(("statements.json",)),
    ),
    Mutant(
        name="first-claim-holds",
        breaks="of two claims of one token the first one seen holds: nodes keep whichever they saw first",
        edits=(
            Edit(
                _ROSTER,
                "Roster.covers",
                "len(held) > statement.uses or any(each.author == statement.author for each in held)",
                "True",
            ),
        ),
        detector=Vectors(("statements.json",)),
    ),
    Mutant(
        name="token-for-many-is-for-one",
        breaks="the second author who claims a token for a class makes it void for all",
        edits=(Edit(_ROSTER, "Roster._put", "len(held) < statement.uses", "not held"),),
        detector=Vectors(("statements.json",)),
    ),
    Mutant(
        name="claims-by-arrival",
        breaks="nodes that heard the claims of a token in another order have other digests",
        edits=(Edit(_ROSTER, "_value", "sorted(each.author for each in held)", "[each.author for each in held]"),),
        detector=Vectors(("statements.json",)),
    ),
    Mutant(
        name="used-string-claimed",
        breaks="whoever pastes a used string once more makes it void for the volunteer who came first",
        edits=(Edit("sfnode.node.own_statements", "Invitations._own_claim", " or roster.is_used_up(claim)", ""),),
        detector=Tests(("tests/node/test_invitations.py",)),
    ),
    Mutant(
        name="owner-signs-for-all",
        breaks="the owner's node admits everybody who claims one invitation",
        edits=(
            Edit(_ROSTER, "Roster.to_admit", "unnamed[: max(0, held[0].uses + len(unnamed) - len(held))]", "unnamed"),
        ),
        detector=Tests(("tests/node/test_invitations.py",)),
    ),
    Mutant(
        name="void-token-forgets-its-author",
        breaks="the records of an author whose token became void are gone when the owner admits it after all",
        edits=(Edit(_REPLICA, "Replica.add_statement", "if not roster.is_admitted(author):", "if False:"),),
        detector=Tests((f"{_TESTS}::test_replica__token_void_then_admitted__has_what_it_held_before",)),
    ),
    Mutant(
        name="work-of-any-run",
        breaks="the work in a key does not depend on the run: one key's work serves for all",
        edits=(
            Edit(
                "protocol.run.admission",
                "work_of",
                'hash_fields("sfnode/work/1", run_id, author)',
                'hash_fields("sfnode/work/1", author)',
            ),
        ),
        detector=Vectors(("statements.json",)),
    ),
)
