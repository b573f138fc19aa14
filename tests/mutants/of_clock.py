"""Bugs of a node's pace: the step clock, and the end of a run."""

from __future__ import annotations

from tests.mutants.detectors import Directed, Simulation, Tests, Vectors
from tests.mutants.directed import made_up_keys_that_sign_old_steps
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_NODE, _CLOCK, _END = "protocol.node.node", "protocol.node.step_clock", "protocol.node.end_of_run"
_AUTHORS = "protocol.node.authors_at_work"
_INTAKE, _OWN = "protocol.node.intake", "protocol.node.own_steps"


CLOCK = (
    Mutant(
        name="waits-for-ever",
        breaks="an author that was active and is gone is waited for without a limit",
        edits=(Edit(_CLOCK, "StepClock.try_start", "now_ms < self._due_ms", "True"),),
        detector=Simulation("no agreement"),
    ),
    Mutant(
        name="jumps-to-the-foremost",
        breaks="the frontier is the highest step of any author: one key drags everybody along",
        edits=(Edit(_AUTHORS, "AuthorsAtWork._round_of", "median_low(steps)", "max(steps)"),),
        detector=Tests(
            ("tests/protocol/test_clock.py::test_clock__one_of_two_others_runs_ahead__does_not_drag_this_node_along",)
        ),
    ),
    Mutant(
        name="one-who-goes-on-leads-those-who-rest",
        breaks="authors who have been silent for a minute do not count: one key ends the run for them",
        edits=(Edit(_AUTHORS, "AuthorsAtWork._recent_steps", "met if heard and 2 * len(heard) <= len(met) else ", ""),),
        detector=Tests(
            (
                "tests/protocol/test_clock.py::"
                "test_frontier__one_goes_on_while_the_others_rest__takes_nobody_along_for_ten_minutes",
            )
        ),
    ),
    Mutant(
        name="a-newcomer-meets-nobody",
        breaks="a newcomer follows the first author that it hears, wherever that one is",
        edits=(Edit(_NODE, "Node.handle", "if not self._has_met and (", "if False and ("),),
        detector=Tests(("tests/conformance/test_vectors.py",)),
    ),
    Mutant(
        name="one-slow-author-holds-two-up",
        breaks="a node does not count itself among those at work",
        edits=(Edit(_CLOCK, "StepClock._is_far_ahead", "[*at_work, self.next_step]", "at_work"),),
        detector=Tests(
            ("tests/protocol/test_clock.py::test_clock__one_of_two_others_is_slow__goes_on_with_the_other",)
        ),
    ),
    Mutant(
        name="fits-into-what-the-others-measure",
        breaks="nodes fit into the others' rounds as they are, not as whole ones: all measure less and less",
        edits=(
            Edit(
                "protocol.node.measured_directions",
                "AffordableDirections.choose",
                "interval_ms[author] * method.directions // self._measured[author]",
                "interval_ms[author]",
            ),
        ),
        detector=Tests(
            (
                "tests/protocol/test_affordable.py::test_machine__others_measure_half_of_their_rounds__is_compared_with_whole_ones",
            )
        ),
    ),
    Mutant(
        name="one-late-round",
        breaks="a machine that is disturbed for a moment measures less for many rounds: a demo lost a seventh",
        edits=(
            Edit(
                "protocol.node.measured_directions",
                "AffordableDirections._fitting",
                "was_late or took_ms > 4 * pace_ms or blocks < self._method.blocks",
                "True",
            ),
        ),
        detector=Vectors(("traces_steps.json",)),
    ),
    Mutant(
        name="only-in-proportion",
        breaks="a node whose round takes as long for one direction as for all stays at one after one slow round",
        edits=(
            Edit(
                "protocol.node.measured_directions",
                "AffordableDirections._fitting",
                "max(blocks + 1, wanted)",
                "wanted",
            ),
        ),
        detector=Vectors(("traces_steps.json",)),
    ),
    Mutant(
        name="old-steps-keep-an-author-at-work",
        breaks="an author that signs old steps only counts as at work and holds the others back",
        edits=(Edit(_INTAKE, "Intake._admit", "elif is_furthest and", "elif"),),
        detector=Directed(made_up_keys_that_sign_old_steps),
    ),
    Mutant(
        name="runs-away-from-a-newcomer",
        breaks="an author that is alone with a slower one has done the run before the other's first update",
        edits=(Edit(_CLOCK, "StepClock._is_far_ahead", "if not has_company:", "if True:"),),
        detector=Tests(
            ("tests/test_convergence.py::test_network__of_a_fast_author_and_a_slow_newcomer__leaves_rounds_to_both",)
        ),
    ),
    Mutant(
        name="joined-and-signs",
        breaks="a node that knew of no peers signs beside a neighbour that may hold its former rounds",
        edits=(
            Edit(
                _OWN,
                "OwnSteps._knows_own_rounds",
                "(self._sync.met_ms is None and not self._config.expects_peers)",
                "not self._config.expects_peers",
            ),
        ),
        detector=Tests(
            (
                "tests/protocol/test_node.py::test_node__told_of_no_peers_and_joined_by_one__signs_nothing_before_it_is_live",
            )
        ),
    ),
    Mutant(
        name="jump-off-the-grid-of-rounds",
        breaks="the frontier is not rounded down to the first step of a round",
        edits=(Edit(_AUTHORS, "AuthorsAtWork._round_of", "middle - middle % self._round_steps", "middle + 1"),),
        detector=Simulation("step_alignment"),
    ),
)

_END_TESTS = "tests/protocol/test_end_of_run.py::test_"

END = (
    Mutant(
        name="leaves-before-its-neighbours-are-equal",
        breaks="a finished node calls the run over although a neighbour holds another set",
        edits=(Edit(_END, "EndOfRun.look", "bool(awaited or differing)", "bool(awaited)"),),
        detector=Tests((f"{_END_TESTS}end__neighbour_with_another_root__is_waited_for",)),
    ),
    Mutant(
        name="work-further-away-is-not-seen",
        breaks="a node whose neighbours are equal leaves before a slow author behind them has signed its first update",
        edits=(Edit(_END, "EndOfRun.look", "min(WORK_DISTANCE_MAX, nearest + 1)", "WORK_DISTANCE_MAX"),),
        detector=Tests((f"{_END_TESTS}end__neighbour_knows_of_work_further_away__is_waited_for_however_quiet_it_is",)),
    ),
    Mutant(
        name="last-rounds-are-not-awaited",
        breaks="an author at work whose connection is down for a moment is left behind",
        edits=(
            Edit(_END, "EndOfRun.look", "len(self._authors.awaited(self._ledger.standing_authors(), now_ms))", "0"),
        ),
        detector=Tests((f"{_END_TESTS}end__author_at_work_lacks_its_last_round__is_awaited_until_it_falls_silent",)),
    ),
    Mutant(
        name="excluded-authors-in-the-frontier",
        breaks="where most authors were excluded, a newcomer begins a finished run anew",
        edits=(Edit("protocol.node.turn", "Turn.frontier", "standing_authors()", "authors()"),),
        detector=Tests(
            (
                "tests/protocol/test_node_admission.py::"
                "test_node__most_authors_were_excluded__frontier_is_that_of_the_others",
            )
        ),
    ),
    Mutant(
        name="late-author-is-waited-for-like-all",
        breaks="one author that stays two rounds behind makes every step three times as long",
        edits=(
            Edit(_CLOCK, "StepClock.try_start", "int(pace_ms / timings.STEP_GRACE_PART) if is_half_there else ", ""),
        ),
        detector=Tests(
            ("tests/protocol/test_clock.py::test_clock__one_author_is_late_in_every_round__costs_the_rest_a_twentieth",)
        ),
    ),
)
