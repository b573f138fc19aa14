"""Bugs of anti-entropy: both ends of the dialogue, its sessions and their rests."""

from __future__ import annotations

from tests.mutants.detectors import Directed, Simulation, Tests, Vectors
from tests.mutants.directed import rest_after_a_good_session
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_SYNC, _SYNCHRONISER = "protocol.sync.anti_entropy", "protocol.sync.comparison_schedule"
_SYNC_TESTS, _SYNCHRONISER_TESTS = "tests/protocol/test_anti_entropy.py::", "tests/protocol/test_synchroniser.py::"
_BEHIND_TOGETHER = "test_horizon__behind_together_with_a_neighbour__does_not_hold_back_what_a_third_one_has"
_LEFT_LONG_AGO = (
    "test_horizon__most_authors_left_long_ago_and_all_are_silent_now__does_not_hold_back_what_the_last_one_did"
)
_SHARING_TESTS = "tests/protocol/test_sharing.py::"
_RETRY_TESTS = "tests/protocol/test_anti_entropy_retries.py::"

DIALOGUE = (
    Mutant(
        name="answer-ignores-the-cursor",
        breaks="every page of authors starts from the beginning, whatever was asked for",
        edits=(Edit(_SYNC, "_answer_authors", "request.after,", "bytes(32),"),),
        detector=Simulation("not in ascending order"),
    ),
    Mutant(
        name="cursor-not-moved-on",
        breaks="the asking side asks for the same page of authors again and again",
        edits=(
            Edit(
                _SYNC,
                "SyncSession._compare_span",
                "after, is_last = page.authors[-1].author if page.authors else after, page.is_last",
                "is_last = page.is_last",
            ),
        ),
        detector=Simulation("no agreement"),
    ),
    Mutant(
        name="first-page-only",
        breaks="every page of authors says that it is the last: a joiner needs a session for each",
        edits=(Edit(_SYNC, "_answer_authors", "is_last=len(held) <= page_authors", "is_last=True"),),
        detector=Tests((_SYNC_TESTS + "test_sync__two_hundred_authors__come_in_pages",)),
    ),
    Mutant(
        name="equal-hashes-are-equal-payloads",
        breaks="nodes that hold two payloads with one hash, found by their author, stay apart for good",
        edits=(Edit(_SYNC, "SyncSession._differing", "their_valid if is_collision else differing", "differing"),),
        detector=Tests(("tests/conformance/test_vectors.py",)),
    ),
    Mutant(
        name="payloads-not-compared",
        breaks="two nodes that hold different payloads in the same slots find nothing missing",
        edits=(
            Edit(
                _SYNC,
                "SyncSession._missing",
                "if not missing and their_valid & own.valid:",
                "if False:",
            ),
        ),
        detector=Simulation("no agreement"),
    ),
    Mutant(
        name="read-back-without-bound",
        breaks="one page of authors has a node read back 131,072 records in a turn",
        edits=(Edit(_SYNC, "SyncSession._differing", "if is_compared and bucket", "if bucket"),),
        detector=Tests((_SYNC_TESTS + "test_session__page_of_subsets_of_what_is_held__is_read_back_within_bounds",)),
    ),
    Mutant(
        name="apart-for-ever",
        breaks="a neighbour whose author table was full of others is not compared with again when something has come",
        edits=(Edit(_SYNCHRONISER, "_Neighbour.is_apart", " and self.roots == (root, self.head.root)", ""),),
        detector=Tests(
            (
                "tests/protocol/test_full_author_tables.py"
                "::test_end__an_author_of_both_full_tables_goes_on__is_pulled_before_they_are_apart_again",
            )
        ),
    ),
    Mutant(
        name="voids-not-asked-for",
        breaks="a slot that is void there and counts here is not asked for",
        edits=(Edit(_SYNC, "SyncSession._missing", "| (their_void & ~own.void)", ""),),
        detector=Simulation("no agreement"),
    ),
    Mutant(
        name="half-of-the-proof-answered",
        breaks="a pull of a void slot is answered with one of its two records",
        edits=(
            Edit(
                "protocol.ledger.slot_table",
                "SlotTable.records",
                "yield from records_of(slot)",
                "yield records_of(slot)[0]",
            ),
        ),
        detector=Simulation("no agreement"),
    ),
    Mutant(
        name="claims-never-released",
        breaks="a slot that a pull asked for is never asked of another neighbour",
        edits=(Edit(_SYNC, "SyncSession._release", "self._claims.taken -= slots", "pass"),),
        detector=Simulation("claimed by no session"),
    ),
    Mutant(
        name="answer-of-another-kind-accepted",
        breaks="any answer is taken for the one that was asked for",
        edits=(Edit(_SYNC, "_expect", "if not isinstance(reply, declared):", "if False:"),),
        detector=Simulation("AttributeError"),
    ),
    Mutant(
        name="pages-need-not-get-ahead",
        breaks="a liar's empty pages keep a session going for ever",
        edits=(Edit(_SYNC, "_check_page", "if not page.authors and not page.is_last:", "if False:"),),
        detector=Vectors(("sync.json",)),
    ),
    Mutant(
        name="short-answer-is-complete",
        breaks="a pull that brought less than was promised counts as done, and makes the node live",
        edits=(Edit(_SYNC, "SyncSession._pull", "if self._asked:", "if False:"),),
        detector=Tests((_SYNC_TESTS + "test_session__peer_promises_and_sends_nothing__is_short_and_asks_no_more",)),
    ),
    Mutant(
        name="any-record-answers-any-slot",
        breaks="copies of one record answer a pull, and make the node live",
        edits=(
            Edit(
                _SYNC,
                "SyncSession.count_records",
                "self._asked & {(Author(record[:KEY_BYTES]), step_of(record)) for record in records}",
                "set(islice(self._asked, len(records)))",
            ),
        ),
        detector=Tests((_SHARING_TESTS + "test_joiner__copies_of_one_record__answer_one_slot",)),
    ),
)

SESSIONS = (
    Mutant(
        name="session-never-given-up",
        breaks="a session whose answers were lost waits for them for ever",
        edits=(
            Edit(
                _SYNCHRONISER,
                "Synchroniser.tick",
                "if silent_ms >= timings.REQUEST_TIMEOUT_MS or now_ms - neighbour.asked_ms >= timings.ANSWER_MS_MAX:",
                "if False:",
            ),
        ),
        detector=Tests(
            (_RETRY_TESTS + "test_sync__answer_in_parts_that_never_end__is_given_up_and_its_bucket_is_free",)
        ),
    ),
    Mutant(
        name="nothing-asked-twice",
        breaks="a request whose answer was lost is not repeated: long sessions never end on a lossy link",
        edits=(Edit(_SYNCHRONISER, "Synchroniser.tick", "and not neighbour.is_asked_again", "and False"),),
        detector=Tests(
            (_RETRY_TESTS + "test_sync__no_answer_for_half_the_time__asks_once_more_under_the_same_number",)
        ),
    ),
    Mutant(
        name="asked-again-at-every-tick",
        breaks="a slow neighbour is asked the same thing twenty times a second",
        edits=(Edit(_SYNCHRONISER, "Synchroniser.tick", "            neighbour.is_asked_again = True\n", ""),),
        detector=Tests(
            (_RETRY_TESTS + "test_sync__no_answer_for_half_the_time__asks_once_more_under_the_same_number",)
        ),
    ),
    Mutant(
        name="late-answer-accepted",
        breaks="the number of an answer is not compared with that of the request in flight",
        edits=(
            Edit(
                _SYNCHRONISER,
                "Synchroniser.receive",
                "or not session.is_answer(message.request)",
                "",
            ),
        ),
        detector=Simulation("was asked for"),
    ),
    Mutant(
        name="late-records-passed-over",
        breaks="records are taken in only when they are pushed or answer the request in flight",
        edits=(
            Edit(
                "protocol.node.intake",
                "Intake.take_records",
                "    self._sync.count_records(",
                "    if message.request and self._sync.horizon_of(peer, message.request, otherwise=-1) == -1:\n"
                "        return\n"
                "    self._sync.count_records(",
            ),
        ),
        detector=Tests(
            (_SYNCHRONISER_TESTS + "test_sync__records_and_statements_that_nobody_asked_for__are_taken_in_and_judged",)
        ),
    ),
    Mutant(
        name="rest-without-bound",
        breaks="the rest after failed sessions doubles without end",
        edits=(Edit(_SYNCHRONISER, "Synchroniser._end", "min(rest_ms, timings.SYNC_REST_MS_MAX)", "rest_ms"),),
        detector=Tests(
            (_SYNCHRONISER_TESTS + "test_sync__peer_never_answers__is_given_up_and_rests_longer_each_time",)
        ),
    ),
    Mutant(
        name="rest-never-shortens",
        breaks="a session that ended well does not take back the long rest that failures have earned",
        edits=(
            Edit(
                _SYNCHRONISER,
                "Synchroniser._end",
                "not session.has_progressed else 0",
                "not session.has_progressed else neighbour.failures",
            ),
        ),
        detector=Directed(rest_after_a_good_session),
    ),
    Mutant(
        name="left-to-others-for-ever",
        breaks="a slow neighbour keeps from a node for hours what the others would send at once",
        edits=(Edit(_SYNCHRONISER, "Synchroniser._end", "neighbour.has_skipped = session.skipped > 0", "pass"),),
        detector=Tests((_SHARING_TESTS + "test_joiner__liars_beside_an_honest_neighbour__has_all_in_seconds",)),
    ),
    Mutant(
        name="pulled-from-everybody",
        breaks="each neighbour is asked for all that is missing: a joiner with eight fetches the run eight times",
        edits=(Edit(_SYNC, "SyncSession._pull_page", "(missing, self._claims.taken)", "(missing, frozenset())"),),
        detector=Tests((_SHARING_TESTS + "test_joiner__eight_honest_neighbours__send_each_record_once",)),
    ),
    Mutant(
        name="live-after-a-skipped-bucket",
        breaks="a node is live although a part of the ledger was left to a session that may fail",
        edits=(Edit(_SYNCHRONISER, "Synchroniser._end", " and not session.skipped", ""),),
        detector=Tests(
            (_SYNCHRONISER_TESTS + "test_sync__bucket_left_to_a_session_that_fails__does_not_count_as_held",)
        ),
    ),
    Mutant(
        name="closed-session-keeps-its-claims",
        breaks="what a neighbour that leaves was asked for is never asked of another",
        edits=(Edit(_SYNCHRONISER, "Synchroniser.close", "        neighbour.session.close()\n", "        pass\n"),),
        detector=Simulation("claimed by no session"),
    ),
    Mutant(
        name="pulled-up-to-the-median",
        breaks="what a neighbour is asked for ends where most neighbours are: two that come back together stay behind",
        edits=(
            Edit(
                "protocol.node.node",
                "Node._receive_head",
                "self.turn.horizon(head.step)",
                "self.turn.horizon()",
            ),
        ),
        detector=Tests((_SYNCHRONISER_TESTS + _BEHIND_TOGETHER,)),
    ),
    Mutant(
        name="horizon-of-authors-who-left",
        breaks="once all are silent, what is asked for ends 64 rounds after a majority that left, below what is held",
        edits=(Edit("protocol.node.authors_at_work", "AuthorsAtWork.horizon", "max(asked_step, ", "min(asked_step, "),),
        detector=Tests((_SYNCHRONISER_TESTS + _LEFT_LONG_AGO,)),
    ),
    Mutant(
        name="sleepers-wait-for-heads",
        breaks="a machine that slept fetches 64 rounds every four seconds, and never reaches a run that is faster",
        edits=(Edit("protocol.node.node", "Node._tick", "for peer, head in cut:", "for peer, head in ():"),),
        detector=Tests(
            (
                "tests/protocol/test_node.py::test_node__machine_that_slept_for_hundreds_of_rounds__"
                "fetches_them_without_waiting_for_heads",
            )
        ),
    ),
    Mutant(
        name="horizon-of-a-frozen-node",
        breaks="the horizon follows nothing but the node's own next step",
        edits=(
            Edit(
                "protocol.node.authors_at_work",
                "AuthorsAtWork.horizon",
                "max(self._round_of(heard or self._other_steps(highest) or [0]), own_step, neighbours) + ahead",
                "own_step",
            ),
        ),
        detector=Simulation("no agreement"),
    ),
)
