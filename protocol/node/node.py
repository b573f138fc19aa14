"""The node core: the whole behaviour of a node as a pure machine. Events in, effects out (SPEC 9).

The daemon passes events in and carries out the effects in their order; the simulator does the same in virtual time.
The core owns the replica, the flood, the sync sessions and the step clock. It uses no socket, file, clock or thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import assert_never

from protocol import limits, timings
from protocol.crypto import DIGEST_BYTES, Author, Signer, seed_of
from protocol.errors import Ignore, IgnoreReason, Reject
from protocol.events import (
    BasisArrived,
    DropPeer,
    Effect,
    EstimateFinished,
    EstimateLost,
    EstimateSkipped,
    Event,
    FetchFailed,
    MessageArrived,
    PeerJoined,
    PeerLeft,
    ReserveStep,
    SendMessage,
    SnapshotArrived,
    StartEstimate,
    StatementSubmitted,
    StoreRecords,
    StoreStatements,
    Ticked,
    TrainingSwitched,
    WorkerReady,
)
from protocol.ledger import Statement, Voided
from protocol.node.end_of_run import EndOfRun
from protocol.node.fetches import BasisFiles
from protocol.node.mismatch import Mismatch
from protocol.node.node_config import NodeConfig
from protocol.node.snapshots import Snapshots
from protocol.node.step_clock import StepClock
from protocol.run import Manifest
from protocol.state import Replica
from protocol.sync import Flood, Synchroniser
from protocol.wire import Attestations, AttestationsRequest, Head, Message, PeerId, Records, Statements

_NOT_SUMMED = bytes(DIGEST_BYTES)  # in a head: the sender's state digest would cost it too much now


class Node:
    """Decides everything that one node of a run does. All calls must come from the one task that owns the state."""

    def __init__(self, manifest: Manifest, signer: Signer, config: NodeConfig, replica: Replica) -> None:
        self.manifest = manifest
        self.replica = replica
        self.clock = StepClock(manifest, signer.author)
        self.sync = Synchroniser(replica.ledger, config.first_request)
        self.snapshots = Snapshots(replica, signer, config, self.sync)
        self.bases = BasisFiles(replica.ledger.roster)
        self.end = EndOfRun(replica.ledger, self.clock, self.sync, config)
        self.mismatch = Mismatch(replica)
        self.ignored: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.own_updates, self.skipped_steps = 0, 0
        self._signer, self._config = signer, config
        self._flood = Flood(replica.ledger.codec.record_bytes)
        self._is_worker_free, self._is_switched_on = False, config.is_training
        self._estimating: int | None = None  # the step that the worker measures now
        self._had_neighbours = config.neighbours_min == 0
        self._first_tick_ms: int | None = None
        self._effects: list[Effect] = []
        self._now_ms = 0
        self.clock.resume_after(config.reserved_step)

    @property
    def author(self) -> Author:
        """Return this node's public key."""
        return self._signer.author

    def is_admitted_for(self, step: int) -> bool:
        """Return whether an update of this node for ``step`` would count."""
        return step < self.replica.ledger.roster.counts_until(self.author)

    @property
    def is_finished(self) -> bool:
        """Return whether this node has no step left to sign, or the run is over for one that may not contribute."""
        if self._estimating is not None or self.clock.is_finished:
            return self._estimating is None
        if self._may_contribute() or not (self.sync.is_live or self.sync.peers == 0):
            return False
        return self.clock.is_run_over(self.replica.ledger.authors(), self._now_ms)

    @property
    def is_summed(self) -> bool:
        """Return whether so few updates wait to be summed that the state digest costs one tick at most."""
        return self.replica.is_summed

    def handle(self, event: Event, now_ms: int, *, is_last: bool = True) -> list[Effect]:
        """Process one event and return the effects to carry out, in order. ``now_ms`` must never decrease.

        ``is_last`` False: the next event waits already, so nothing is pushed yet. This makes frames fuller and spares
        neighbours the records that they send themselves in these events.
        """
        self._effects = []
        self._now_ms = now_ms
        match event:
            case PeerJoined():
                self._flood.open(event.peer)
                self.sync.open(event.peer)
                self._send_head(event.peer)
                self._do(self.snapshots.peer_joined(event.peer))
            case PeerLeft():
                self._close(event.peer)
            case MessageArrived():
                self._receive(event.peer, event.message)
            case EstimateFinished():
                self._publish(event.step, event.scalars)
            case EstimateSkipped() | EstimateLost():
                self._pass_over(event.step, is_worker_free=isinstance(event, EstimateSkipped))
            case WorkerReady():
                self._is_worker_free = True
            case TrainingSwitched():
                self._is_switched_on = event.is_on and self._config.is_training
            case StatementSubmitted():
                self._take_in([event.statement], source=None, is_news=True)
            case BasisArrived():
                self.bases.arrived(event.sha256)
            case SnapshotArrived():
                self._do(self.snapshots.show(event.data))
            case FetchFailed():
                self.bases.failed(event.sha256, now_ms, is_lasting=event.is_lasting)
                self.snapshots.fetch_failed(event.sha256, now_ms)
            case Ticked():
                self._flood.adapt(event.late_ms)
                self._tick()
            case _:
                assert_never(event)
        self._start_step_if_due()
        is_head = isinstance(event, MessageArrived) and isinstance(event.message, Head)
        if is_head or isinstance(event, Ticked):
            self._look_at_end(is_compared=is_head)
        if is_last:
            self._do([SendMessage(peer=peer, message=message) for peer, message in self._flood.flush(now_ms)])
        return self._effects

    def rest_ms(self) -> int:
        """Return how long the caller may wait for an event before it must send Ticked."""
        if self._is_worker_free and self._is_switched_on and not self.clock.is_finished:
            return self.clock.rest_ms(self._now_ms)  # the end of a wait may start a step without any event
        if self.mismatch.is_at_work or not self.is_summed:
            return timings.FLUSH_INTERVAL_MS
        return min(self._flood.rest_ms(self._now_ms), self.end.rest_ms(self._now_ms), timings.REST_MS_MAX)

    # --- messages -----------------------------------------------------------------------------------------

    def _receive(self, peer: PeerId, message: Message) -> None:
        if not self.sync.is_open(peer):
            return  # the message was on its way when the peer was dropped
        try:
            match message:
                case Records():
                    self._receive_records(peer, message)
                case Statements():
                    self._receive_statements(peer, message)
                case Head():
                    self._receive_head(peer, message)
                case Attestations() | AttestationsRequest():
                    self._do(self.snapshots.receive(peer, message))
                case _:
                    self._do(self.sync.receive(peer, message, self._now_ms))
        except Reject as reject:
            # Bytes that no honest node can have sent: never relayed, and the session ends (SPEC 8.5).
            self.rejected[reject.reason.name] += 1
            self._drop(peer, str(reject))

    def _drop(self, peer: PeerId, reason: str) -> None:
        """Drop a neighbour at once, although the end of its session is still to be reported."""
        self._close(peer)
        self._do([DropPeer(peer=peer, reason=reason)])

    def _close(self, peer: PeerId) -> None:
        self._flood.close(peer)
        self.sync.close(peer)
        self.snapshots.peer_left(peer)
        self.mismatch.forget(peer)

    def _receive_records(self, peer: PeerId, message: Records) -> None:
        records = self.replica.ledger.codec.split_untrusted(message.data)
        self.sync.count_records(peer, message.request, len(records), self._now_ms)
        frontier = self.frontier()
        horizon_step = self.sync.horizon_of(peer, message.request, otherwise=self._horizon_step())
        # The other neighbours already have what a node requests while it catches up, so do not push it (SPEC 8.3).
        is_news = self.sync.is_live or message.request == 0
        fresh: list[bytes] = []
        try:
            for record in records:
                if self.replica.ledger.holds(record):  # most copies end here
                    self.ignored[IgnoreReason.ALREADY_HELD.name] += 1
                    self._flood.mark_known(peer, record)
                    continue
                fresh.extend(self._admit(record, peer, frontier, horizon_step))
        finally:
            self._keep(fresh, source=peer, is_news=is_news)

    def _admit(self, record: bytes, peer: PeerId, frontier: int, horizon_step: int | None) -> list[bytes]:
        """Add a record to the replica and return the records to store and relay. Raises Reject."""
        try:
            outcome = self.replica.add(record, horizon_step=horizon_step)
        except Ignore as ignore:
            self.ignored[ignore.reason.name] += 1
            self._flood.mark_known(peer, record)
            return []
        if isinstance(outcome, Voided):
            # Both records together prove the equivocation. The peer that sent the second may lack the first.
            self._flood.push(outcome.first.record, source=None)
            return [outcome.second.record]
        author, step = outcome.envelope.author, outcome.envelope.step
        is_further = step == self.replica.ledger.highest_step(author)
        if is_further and (self.sync.is_live or step >= frontier):
            self.clock.hear(author, outcome.envelope.scalars, self._now_ms)
        return [record]

    def _keep(self, fresh: list[bytes], *, source: PeerId | None, is_news: bool = True) -> None:
        """Store new records, then relay them: they must be durable before any neighbour sees them."""
        if not fresh:
            return
        self._do([StoreRecords(records=tuple(fresh), is_own=source is None)])
        if source is not None:
            self.mismatch.brought_news(source)
        for record in fresh if is_news else ():
            self._flood.push(record, source=source)

    # --- statements ---------------------------------------------------------------------------------------

    def _receive_statements(self, peer: PeerId, message: Statements) -> None:
        self._take_in(message.statements, source=peer, is_news=self.sync.is_live or message.request == 0)
        self._do(self.sync.receive(peer, message, self._now_ms))

    def _take_in(self, statements: Sequence[bytes], *, source: PeerId | None, is_news: bool) -> None:
        """Add statements to the roster, store the new ones and relay them. Raises Reject for a peer's invalid ones."""
        fresh: list[Statement] = []
        try:
            for data in statements:
                fresh.extend(self._admit_statement(data))
        except Reject as reject:
            if source is not None:
                raise
            self.rejected[reject.reason.name] += 1
        finally:
            self._keep_statements(fresh, source=source, is_news=is_news)

    def _admit_statement(self, data: bytes) -> list[Statement]:
        try:
            return [self.replica.add_statement(data)]
        except Ignore as ignore:
            self.ignored[ignore.reason.name] += 1
            return []

    def _keep_statements(self, fresh: Sequence[Statement], *, source: PeerId | None, is_news: bool) -> None:
        if not fresh:
            return
        ledger = self.replica.ledger
        self._do([StoreStatements(statements=tuple(statement.data for statement in fresh))])
        self.clock.forget_others(ledger.authors())
        self._flood.keep(ledger.counts)
        if not is_news:
            return
        # Of a token claimed twice, send both claims: together they are the proof, and a neighbour may lack either.
        told = [each.data for statement in fresh for each in ledger.roster.held(statement.key)]
        for start in range(0, len(told), limits.STATEMENTS_PER_MESSAGE_MAX):
            part = tuple(told[start : start + limits.STATEMENTS_PER_MESSAGE_MAX])
            message = Statements(request=0, statements=part, is_last=True)
            self._do([SendMessage(peer=peer, message=message) for peer in self.sync.open_peers() if peer != source])

    def _receive_head(self, peer: PeerId, head: Head) -> None:
        # While many updates wait to be added or removed, this node's digest would cost a long computation.
        is_same = head.root == self.replica.ledger.root() and self.is_summed and head.state_digest != _NOT_SUMMED
        if is_same and head.state_digest != self.replica.state_digest():
            self.mismatch.claimed(peer, self._now_ms)
            return
        first = self.snapshots.author_sought(head.updates)
        self._do(self.sync.receive_head(peer, head, self._now_ms, self._horizon_step(head.step), first))

    # --- own steps ----------------------------------------------------------------------------------------

    def _start_step_if_due(self) -> None:
        if self._estimating is not None or not self._is_worker_free or not self._may_sign():
            return
        highest = self.replica.ledger.authors()
        self.clock.resume_after(highest.get(self._signer.author, -1))
        step = self.clock.try_start(highest, self._now_ms)
        if step is None:
            return
        self._estimating = step
        self._is_worker_free = False
        seed = seed_of(self.manifest.run_id, self._signer.author, step)
        directions = self.clock.affordable.chosen
        self._do([ReserveStep(step=step), StartEstimate(step=step, seed=seed, directions=directions)])

    def _may_sign(self) -> bool:
        """Return whether this node may sign: not before it asked the peers for its own highest round (SPEC 9.2)."""
        if not self._may_contribute() or self.clock.is_finished or self._first_tick_ms is None:
            return False
        next_step = max(self.clock.next_step, self.frontier())
        if not self.bases.is_here(next_step // self.manifest.method.epoch_steps):  # SPEC 9.2.5
            return False
        waited_ms = self._now_ms - self._first_tick_ms
        has_enough = self.sync.peers >= self._config.neighbours_min or waited_ms >= timings.FIRST_SYNC_TIMEOUT_MS
        self._had_neighbours = self._had_neighbours or has_enough
        # A long catch-up is not silence: only a node that gets no answer goes on with the records on its disk.
        silent_ms = self._now_ms - max(self._first_tick_ms, self.sync.answered_ms)
        is_silent = silent_ms >= timings.FIRST_SYNC_TIMEOUT_MS or not self._config.expects_peers
        return self._had_neighbours and (is_silent or self.snapshots.may_train())

    def _may_contribute(self) -> bool:
        """Return whether its next step would count: no relay, not paused, admitted, and room in the author table."""
        has_room = self.replica.ledger.has_room_for(self.author)
        return self._is_switched_on and has_room and self.is_admitted_for(self.clock.next_step)

    def _publish(self, step: int, scalars: tuple[int, ...]) -> None:
        if step != self._estimating:
            return
        self._estimating, self._is_worker_free = None, True
        self.clock.step_finished(self._now_ms, is_measured=True)
        ledger = self.replica.ledger
        # SPEC 9.2.4: during the measurement, a record of its own for this round or a later one may have come, or the
        # author table may have become full. A second payload would void the first.
        is_taken = ledger.highest_step(self.author) >= step or not ledger.has_room_for(self.author)
        if is_taken or not self.is_admitted_for(step):
            self.skipped_steps += 1
            return
        envelope = ledger.codec.seal(self._signer, step, scalars)
        self.replica.add(envelope.record)
        self.own_updates += 1
        self._keep([envelope.record], source=None)

    def _pass_over(self, step: int, *, is_worker_free: bool) -> None:
        if step != self._estimating:
            return
        self._estimating, self._is_worker_free = None, is_worker_free
        self.skipped_steps += 1
        self.clock.step_finished(self._now_ms, is_measured=False)

    # --- time ---------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._first_tick_ms is None:
            self._first_tick_ms = self._now_ms
        self.replica.tick()
        found = self.mismatch.tick(self._now_ms) if self.is_summed else None
        if isinstance(found, DropPeer):
            self._drop(found.peer, found.reason)
        elif found is not None:
            self._do([found])
        for peer in self.sync.peers_due_for_head(self._now_ms):
            self._send_head(peer)
        self._do(self.sync.tick(self._now_ms))
        self._do(self.snapshots.tick(self.frontier() if self.is_summed else None, self._now_ms))
        self._do(self.bases.tick(self._now_ms))

    def _look_at_end(self, *, is_compared: bool) -> None:
        """Update whether the run is over and how far away work is (SPEC 9.6). ``is_compared``: the root is known."""
        is_catching_up = self.sync.peers > 0 and not self.sync.is_live
        has_steps = self._estimating is not None or (self._may_contribute() and not self.clock.is_finished)
        has_work = has_steps or is_catching_up or not self.is_summed
        if is_compared or has_work or self.is_finished:
            self.end.look(has_work=has_work, is_finished=self.is_finished, now_ms=self._now_ms)
        if self.end.must_tell(self._now_ms):
            for peer in self.sync.open_peers():
                self._send_head(peer)

    def _send_head(self, peer: PeerId) -> None:
        """Send the head, without the state digest while that would cost a long computation."""
        self.sync.head_sent(peer, self._now_ms)
        head = Head(
            root=self.replica.ledger.root(),
            state_digest=self.replica.state_digest() if self.is_summed else _NOT_SUMMED,
            updates=self.replica.ledger.updates,
            step=self.frontier(),
            work_distance=self.end.work_distance,
        )
        self._do([SendMessage(peer=peer, message=head)])

    def frontier(self) -> int:
        """Return how far the run is: the lower median of the other authors' highest steps (`StepClock.frontier`)."""
        return self.clock.frontier(self.replica.ledger.authors(), self._now_ms)

    def _horizon_step(self, asked_step: int | None = None) -> int | None:
        """Return the last step acceptable now; None while catching up, when every step lies ahead (SPEC 7.3.3)."""
        if not self.sync.is_live:
            return None
        return self.clock.horizon(self.replica.ledger.authors(), self._now_ms, self.sync.head_step, asked_step)

    def _do(self, effects: Sequence[Effect]) -> None:
        self._effects.extend(effects)
