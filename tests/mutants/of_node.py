"""Bugs of the node core: verdicts, the order of effects, signing safety, the flood, the step clock."""

from __future__ import annotations

from tests.mutants.detectors import Directed, Simulation, Tests, Vectors
from tests.mutants.directed import made_up_keys_that_sign_old_steps
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_NODE, _FLOOD, _CLOCK = "protocol.node.node", "protocol.sync.flood_queues", "protocol.node.step_clock"
_INTAKE, _OWN, _END = "protocol.node.intake", "protocol.node.own_steps", "protocol.node.end_of_run"
_RECOUNT, _RECOUNTS = "protocol.state.recount", "tests/protocol/test_recount.py::"
_SOUND = _RECOUNTS + "test_recount__ledger_changes_between_any_two_slices__sound_state_is_found_sound"
_IGNORED = "        self.ignored[ignore.reason.name] += 1\n"

RECORDS = (
    Mutant(
        name="dedup-before-store",
        breaks="a record counts as seen before it was accepted: one that came too early is never taken again",
        edits=(
            Edit(
                _INTAKE,
                "Intake._admit",
                "    try:\n",
                "    seen = self.__dict__.setdefault('seen', set())\n"
                "    if record in seen:\n"
                "        return []\n"
                "    seen.add(record)\n"
                "    try:\n",
            ),
        ),
        detector=Simulation("no agreement"),
    ),
    Mutant(
        name="ignored-is-rejected",
        breaks="a record that cannot be used now cuts its sender off, copies included",
        edits=(
            Edit(
                _INTAKE,
                "Intake._admit",
                _IGNORED,
                "        from protocol.errors import Reject, RejectReason\n"
                "        raise Reject(RejectReason.SIZE, str(ignore)) from None\n",
            ),
        ),
        detector=Simulation("an honest node was cut off"),
    ),
    Mutant(
        name="relays-of-equivocators-punished",
        breaks="a peer that relays a further version for a void slot is cut off, though it did nothing wrong",
        edits=(
            Edit(
                _INTAKE,
                "Intake._admit",
                _IGNORED,
                "        if ignore.reason.name == 'SLOT_VOID':\n"
                "            from protocol.errors import Reject, RejectReason\n"
                "            raise Reject(RejectReason.SIZE, str(ignore)) from None\n" + _IGNORED,
            ),
        ),
        detector=Simulation("slot_void"),
    ),
    Mutant(
        name="proof-not-stored",
        breaks="the second payload voids the slot in memory and is not stored: after a restart the first one counts",
        edits=(Edit(_INTAKE, "Intake._admit", "return [outcome.second.record]", "return []"),),
        detector=Simulation("the ledger holds other records"),
    ),
    Mutant(
        name="relayed-before-stored",
        breaks="records are sent on before they are stored",
        edits=(
            Edit(
                _NODE,
                "Node.handle",
                "turn.do(events.SendMessage(",
                "turn.effects[:0] = list(events.SendMessage(",
            ),
        ),
        detector=Simulation("sent that was not stored"),
    ),
    Mutant(
        name="pulled-records-not-verified",
        breaks="signatures of pulled records are not looked at, since a neighbour has verified them",
        edits=(
            Edit(
                _INTAKE,
                "Intake._admit",
                "        outcome = self._replica.add(record, horizon_step=horizon_step)\n",
                "        codec = self._replica.ledger.codec\n"
                "        if self._sync._neighbours[peer].session:\n"
                "            codec.check_signed = lambda envelope: None\n"
                "        try:\n"
                "            outcome = self._replica.add(record, horizon_step=horizon_step)\n"
                "        finally:\n"
                "            codec.__dict__.pop('check_signed', None)\n",
            ),
        ),
        detector=Simulation("nobody has signed so"),
    ),
    Mutant(
        name="halt-on-any-mismatch",
        breaks="a neighbour's false state digest stops an honest node",
        edits=(Edit("protocol.node.state_mismatch", "Mismatch.tick", "if not is_sound:", "if True:"),),
        detector=Simulation("an honest node halted"),
    ),
    Mutant(
        name="recount-for-anybody",
        breaks="a stranger's 87 bytes make a node read its whole ledger",
        edits=(
            Edit(
                "protocol.node.state_mismatch", "Mismatch.claimed", "is_whole = peer in self._useful", "is_whole = True"
            ),
        ),
        detector=Tests((_RECOUNTS + "test_node__neighbour_without_news__is_ignored_and_no_record_is_read",)),
    ),
    Mutant(
        name="recount-without-end",
        breaks="a slice of a recount ends with the epoch: the node does nothing else for seconds",
        edits=(Edit(_RECOUNT, "Recount._spend", "is_over = self._cost >= _SLICE_COST", "is_over = False"),),
        detector=Tests((_RECOUNTS + "test_recount__each_slice__reads_and_sums_little",)),
    ),
    Mutant(
        name="recount-misses-what-comes-late",
        breaks="an update that comes where a recount has passed makes a sound node halt",
        edits=(Edit(_RECOUNT, "Recount.follow", "self._to_add += filter(self._has_passed, added)", "pass"),),
        detector=Tests((_SOUND,)),
    ),
    Mutant(
        name="recount-misses-what-goes",
        breaks="a slot that is voided where a recount has passed makes a sound node halt",
        edits=(Edit(_RECOUNT, "Recount.follow", "self._to_remove += filter(self._has_passed, removed)", "pass"),),
        detector=Tests((_SOUND,)),
    ),
    Mutant(
        name="recount-takes-all-that-comes",
        breaks="an update that a recount has yet to find is summed twice, and a sound node halts",
        edits=(Edit(_RECOUNT, "Recount._has_passed", "(self._order[update.author], offset) < self._passed", "True"),),
        detector=Tests((_SOUND,)),
    ),
    Mutant(
        name="dropped-peer-keeps-its-queue",
        breaks="records go on piling up for a peer that was cut off",
        edits=(Edit(_NODE, "Node._close", "    self._flood.close(peer)\n", ""),),
        detector=Simulation("a push queue without a neighbour"),
    ),
    Mutant(
        name="head-told-once",
        breaks="neighbours compare ledgers when they meet and never again",
        edits=(
            Edit(
                _NODE,
                "Node._tick",
                "for peer in self.sync.peers_due_for_head(now_ms):",
                "for peer in ():",
            ),
        ),
        detector=Simulation("no agreement"),
    ),
)

SIGNING = (
    Mutant(
        name="reservation-forgotten",
        breaks="after a restart the node does not look at the step that its disk has reserved",
        edits=(Edit(_OWN, "OwnSteps.__init__", "    self._clock.resume_after(config.reserved_step)\n", ""),),
        detector=Simulation("reserved twice"),
    ),
    Mutant(
        name="estimate-before-reservation",
        breaks="the worker starts before the step is durable",
        edits=(
            Edit(
                _OWN,
                "OwnSteps.start_if_due",
                "[ReserveStep(step=step), StartEstimate(step=step, seed=seed, directions=directions)]",
                "[StartEstimate(step=step, seed=seed, directions=directions), ReserveStep(step=step)]",
            ),
        ),
        detector=Simulation("estimated without reservation"),
    ),
    Mutant(
        name="own-update-not-durable",
        breaks="the node's own update is stored like those of others, without waiting for the disk, and sent",
        edits=(Edit(_INTAKE, "Intake.keep", "is_own=source is None", "is_own=False"),),
        detector=Simulation("never made durable"),
    ),
    Mutant(
        name="live-from-the-start",
        breaks="a node that knows of peers signs before it has asked them for its own highest round",
        edits=(
            Edit(
                "protocol.sync.comparison_schedule",
                "Synchroniser.__init__",
                "self.is_live = False",
                "self.is_live = True",
            ),
        ),
        detector=Simulation("before any of them had answered"),
    ),
    Mutant(
        name="signed-without-another-look",
        breaks="an own record that came while the worker measured is not looked at before the next one is signed",
        edits=(Edit(_OWN, "OwnSteps.finish", "ledger.highest_step(author) >= step or", ""),),
        detector=Tests(
            (
                "tests/protocol/test_node.py"
                "::test_node__own_record_of_the_step_comes_while_it_measures__signs_no_second_payload",
            )
        ),
    ),
)

FLOOD = (
    Mutant(
        name="push-queue-without-bound",
        breaks="whatever waits for a slow neighbour is kept: memory without end",
        edits=(Edit(_FLOOD, "PushQueue.push", "len(self._waiting) < limits.PUSH_QUEUE_RECORDS_MAX", "True"),),
        detector=Simulation("a push queue exceeds its bound"),
    ),
    Mutant(
        name="echo-to-the-source",
        breaks="a record is sent back to the neighbour it came from",
        edits=(Edit(_FLOOD, "Flood.push", "if peer != source:", "if True:"),),
        detector=Simulation("told of a record that it has sent"),
    ),
    Mutant(
        name="one-push-queue-for-all",
        breaks="neighbours share one queue: what one was sent the others are never told",
        edits=(
            Edit(
                _FLOOD,
                "Flood.open",
                "self._queues[peer] = PushQueue()",
                "self._queues[peer] = next(iter(self._queues.values()), PushQueue())",
            ),
        ),
        detector=Simulation("never told of it"),
    ),
    Mutant(
        name="half-of-the-proof-flooded",
        breaks="of an equivocator's two records only the second is flooded",
        edits=(Edit(_INTAKE, "Intake._admit", "        self._flood.push(outcome.first.record, source=None)\n", ""),),
        detector=Simulation("never told of it"),
    ),
    Mutant(
        name="pushed-while-events-wait",
        breaks="frames leave before the events that wait already were looked at: more of them, and more copies",
        edits=(Edit(_NODE, "Node.handle", "if is_last:", "if True:"),),
        detector=Simulation("while a further event was waiting"),
    ),
    Mutant(
        name="late-ticks-change-nothing",
        breaks="a busy machine sends as many frames as an idle one",
        edits=(Edit(_FLOOD, "Flood.adapt", "2 * self.interval_ms", "self.interval_ms"),),
        detector=Simulation("too soon again"),
    ),
    Mutant(
        name="busy-once-slow-for-ever",
        breaks="records are gathered for long although the machine is idle again",
        edits=(
            Edit(
                _FLOOD,
                "Flood.adapt",
                "max(self.interval_ms - timings.FLUSH_INTERVAL_MS // 2, timings.FLUSH_INTERVAL_MS)",
                "self.interval_ms",
            ),
        ),
        detector=Simulation("never told of it"),
    ),
)

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
        edits=(Edit(_CLOCK, "StepClock._round_of", "median_low(steps)", "max(steps)"),),
        detector=Tests(
            ("tests/protocol/test_clock.py::test_clock__one_of_two_others_runs_ahead__does_not_drag_this_node_along",)
        ),
    ),
    Mutant(
        name="one-who-goes-on-leads-those-who-rest",
        breaks="authors who have been silent for a minute do not count: one key ends the run for them",
        edits=(Edit(_CLOCK, "StepClock._recent_steps", "met if heard and 2 * len(heard) <= len(met) else ", ""),),
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
        edits=(Edit(_INTAKE, "Intake._admit", "if is_further and", "if"),),
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
        edits=(Edit(_CLOCK, "StepClock._round_of", "middle - middle % self._round_steps", "middle + 1"),),
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
        edits=(Edit(_END, "EndOfRun.look", "len(self._clock.awaited(self._ledger.authors(), now_ms))", "0"),),
        detector=Tests((f"{_END_TESTS}end__author_at_work_lacks_its_last_round__is_awaited_until_it_falls_silent",)),
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
