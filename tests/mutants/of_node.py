"""Bugs of the node core: verdicts, the order of effects, signing safety, the flood."""

from __future__ import annotations

from tests.mutants.detectors import Simulation, Tests
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
        edits=(Edit(_INTAKE, "Intake._admit", "self._flood.push(voided.record, source=None)", "return []"),),
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
                "        envelope, voided = self._replica.add(record, horizon_step=horizon_step)\n",
                "        codec = self._replica.ledger.codec\n"
                "        if self._sync._neighbours[peer].session:\n"
                "            codec.check_signed = lambda envelope: None\n"
                "        try:\n"
                "            envelope, voided = self._replica.add(record, horizon_step=horizon_step)\n"
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
        edits=(Edit(_FLOOD, "Flood.push", "len(queue) < limits.PUSH_QUEUE_RECORDS_MAX", "True"),),
        detector=Simulation("a push queue exceeds its bound"),
    ),
    Mutant(
        name="echo-to-the-source",
        breaks="a record is sent back to the neighbour it came from",
        edits=(Edit(_FLOOD, "Flood.push", "peer != source", "True"),),
        detector=Simulation("told of a record that it has sent"),
    ),
    Mutant(
        name="one-push-queue-for-all",
        breaks="neighbours share one queue: what one was sent the others are never told",
        edits=(
            Edit(
                _FLOOD,
                "Flood.open",
                "{}, -timings.FLUSH_INTERVAL_MS",
                "next(iter(self._queues.values()), {}), -timings.FLUSH_INTERVAL_MS",
            ),
        ),
        detector=Simulation("never told of it"),
    ),
    Mutant(
        name="half-of-the-proof-flooded",
        breaks="of an equivocator's two records only the second is flooded",
        edits=(Edit(_INTAKE, "Intake._admit", "self._flood.push(voided.record, source=None)", "pass"),),
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
