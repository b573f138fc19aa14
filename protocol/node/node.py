"""The node core: the whole behaviour of a node as a pure machine. Events in, effects out (SPEC 9).

The daemon passes events in and carries out the effects in their order; the simulator does the same in virtual time.
The core owns the replica, the flood, the sync sessions and the step clock. It uses no socket, file, clock or thread.
"""

from collections import Counter
from typing import assert_never

from protocol import events, limits, timings
from protocol.crypto import Signer, hashing
from protocol.errors import Reject
from protocol.node.end_of_run import EndOfRun
from protocol.node.intake import Intake
from protocol.node.node_config import NodeConfig
from protocol.node.own_steps import OwnSteps
from protocol.node.snapshots import Snapshots
from protocol.node.state_mismatch import Mismatch
from protocol.node.step_clock import StepClock
from protocol.node.turn import Turn
from protocol.run import Manifest
from protocol.state import Replica
from protocol.sync import Flood, Synchroniser
from protocol.wire import Attestations, AttestationsRequest, Head, Message, PeerId, Records, Statements

_NOT_SUMMED = bytes(hashing.DIGEST_BYTES)  # in a head: the sender's state digest would cost it too much now


class Node:
    """Gives each event to the part that it concerns: what comes in, own steps, sync, snapshots, end of the run.

    All calls must come from the one task that owns the state.

    Attributes:
        rejected: how many messages and statements were provably wrong, by the name of the reason.
    """

    def __init__(self, manifest: Manifest, signer: Signer, config: NodeConfig, replica: Replica) -> None:
        self.manifest = manifest
        self.author = signer.author
        self.replica = replica
        self.clock = StepClock(manifest, signer.author)
        self.sync = Synchroniser(replica.ledger, config.first_request)
        self.snapshots = Snapshots(replica, signer, config, self.sync)
        self.end = EndOfRun(replica.ledger, self.clock.authors, self.sync, config)
        self.mismatch = Mismatch(replica)
        self.rejected: Counter[str] = Counter()
        self._has_met = False  # the authors who were at work before it came
        self._flood = Flood(replica.ledger.codec.record_bytes)
        self.turn = Turn(replica, self.clock, self.sync)
        self.intake = Intake(self.turn, self._flood, self.mismatch)
        self.own_steps = OwnSteps(self.turn, signer, config, self.snapshots)

    def handle(self, event: events.Event, now_ms: int, *, is_last: bool = True) -> list[events.Effect]:
        """Process one event and return the effects to carry out, in order. ``now_ms`` must never decrease.

        ``is_last`` False: the next event waits already, so nothing is pushed yet. This makes frames fuller and spares
        neighbours the records that they send themselves in these events.
        """
        turn, own_steps = self.turn, self.own_steps
        turn.begin(now_ms)
        match event:
            case events.PeerJoined():
                self._flood.open(event.peer)
                self.sync.open(event.peer, now_ms)
                self._send_head(event.peer)
                turn.do(self.snapshots.peer_joined(event.peer))
            case events.PeerLeft():
                self._close(event.peer)
            case events.MessageArrived() if not self.sync.is_open(event.peer):
                return []  # it was on its way when the peer was dropped (SPEC 8.5)
            case events.MessageArrived():
                self._receive(event.peer, event.message)
            case events.EstimateFinished():
                self.intake.keep(own_steps.finish(event), source=None)
            case events.EstimateSkipped() | events.EstimateLost():
                own_steps.skip(event.step, is_worker_free=isinstance(event, events.EstimateSkipped))
            case events.WorkerReady():
                own_steps.is_worker_free = True
            case events.TrainingSwitched():
                own_steps.switch(is_on=event.is_on)
            case events.StatementSubmitted():
                self._submit(event.statement)
            case events.SnapshotArrived():
                turn.do(self.snapshots.show(event.data))
            case events.FetchFailed():
                self.snapshots.fetch_failed(event.sha256, now_ms)
            case events.Ticked():
                self._flood.adapt(event.late_ms)
                self._tick()
            case _:
                assert_never(event)
        if not self._has_met and (self.sync.is_live or self.snapshots.may_train()):
            self._has_met = True
            self.clock.authors.meet(self.replica.ledger.standing_authors(), self.sync.head_step, now_ms)
        own_steps.start_if_due()
        is_head = isinstance(event, events.MessageArrived) and isinstance(event.message, Head)
        if is_head or isinstance(event, events.Ticked):
            self._look_at_end(is_compared=is_head)
        if is_last:
            turn.do(events.SendMessage(peer=peer, message=message) for peer, message in self._flood.flush(now_ms))
        return turn.effects

    def rest_ms(self) -> int:
        """Return how long the caller may wait for an event before it must send Ticked."""
        now_ms = self.turn.now_ms
        if self.own_steps.is_waiting:
            return self.clock.rest_ms(now_ms)
        if self.mismatch.is_at_work or not self.replica.is_summed:
            return timings.FLUSH_INTERVAL_MS
        return min(self._flood.rest_ms(now_ms), self.end.rest_ms(now_ms), timings.REST_MS_MAX)

    # --- messages -----------------------------------------------------------------------------------------

    def _receive(self, peer: PeerId, message: Message) -> None:
        try:
            match message:
                case Records():
                    self.intake.take_records(peer, message)
                case Statements():
                    is_news = self.sync.is_live or message.request == 0
                    self.intake.take_statements(message.statements, source=peer, is_news=is_news)
                    self.turn.do(self.sync.receive(peer, message, self.turn.now_ms))
                case Head():
                    self._receive_head(peer, message)
                case Attestations() | AttestationsRequest():
                    self.turn.do(self.snapshots.receive(peer, message))
                case _:
                    self.turn.do(self.sync.receive(peer, message, self.turn.now_ms))
        except Reject as reject:
            # Bytes that no honest node can have sent: never relayed, and the session ends (SPEC 8.5).
            self.rejected[reject.reason.name] += 1
            self._drop(peer, str(reject))

    def _submit(self, statement: bytes) -> None:
        try:
            self.intake.take_statements([statement], source=None, is_news=True)
        except Reject as reject:  # the operator's mistake: nobody is dropped for it
            self.rejected[reject.reason.name] += 1

    def _drop(self, peer: PeerId, reason: str) -> None:
        """Drop a neighbour at once, although the end of its session is still to be reported."""
        self._close(peer)
        self.turn.do([events.DropPeer(peer=peer, reason=reason)])

    def _close(self, peer: PeerId) -> None:
        self._flood.close(peer)
        self.sync.close(peer)
        self.snapshots.attestations.forget(peer)
        self.mismatch.forget(peer)

    def _receive_head(self, peer: PeerId, head: Head) -> None:
        # While many updates wait to be added or removed, this node's digest would cost a long computation.
        is_summed = self.replica.is_summed and head.state_digest != _NOT_SUMMED
        is_same = is_summed and head.root == self.replica.ledger.root()
        if is_same and head.state_digest != self.replica.state_digest():
            self.mismatch.claimed(peer, self.turn.now_ms)
            return
        first = self.snapshots.author_sought(head.updates)
        horizon = self.turn.horizon(head.step)
        self.turn.do(self.sync.receive_head(peer, head, self.turn.now_ms, horizon, first))

    def _send_head(self, peer: PeerId) -> None:
        """Send the head, without the state digest while that would cost a long computation."""
        self.sync.head_sent(peer, self.turn.now_ms)
        head = Head(
            root=self.replica.ledger.root(),
            state_digest=self.replica.state_digest() if self.replica.is_summed else _NOT_SUMMED,
            updates=self.replica.ledger.updates,
            step=self.turn.frontier(),
            work_distance=self.end.ending.work_distance,
        )
        self.turn.do([events.SendMessage(peer=peer, message=head)])

    # --- time ---------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now_ms = self.turn.now_ms
        self.own_steps.tick()
        self.replica.tick()
        found = self.mismatch.tick(now_ms) if self.replica.is_summed else None
        if isinstance(found, events.DropPeer):
            self._drop(found.peer, found.reason)
        elif found is not None:
            self.turn.do([found])
        for peer in self.sync.peers_due_for_head(now_ms):
            self._send_head(peer)
        self.turn.do(self.sync.tick(now_ms))
        far = limits.STEPS_AHEAD_MAX // 2 * self.replica.manifest.method.local_steps
        cut = self.sync.cut_short(lambda head, step: (self.turn.horizon(head.step) or 0) >= step + far)
        for peer, head in cut:  # a machine that slept fetches 64 rounds after the other
            self._receive_head(peer, head)
        self.turn.do(self.snapshots.tick(self.turn.frontier() if self.replica.is_summed else None, now_ms))

    def _look_at_end(self, *, is_compared: bool) -> None:
        """Update whether the run is over and how far away work is (SPEC 9.6). ``is_compared``: the root is known."""
        is_finished, now_ms = self.own_steps.is_finished, self.turn.now_ms
        is_catching_up = self.sync.peers > 0 and not self.sync.is_live
        is_catching_up = is_catching_up and not (is_finished and self.own_steps.is_unanswered)
        has_work, is_summed = self.own_steps.is_left or is_catching_up, self.replica.is_summed
        if is_compared or has_work or is_finished or not is_summed:
            self.end.look(has_work=has_work, is_summed=is_summed, is_finished=is_finished, now_ms=now_ms)
        if self.end.must_tell(now_ms):
            for peer in self.sync.open_peers():
                self._send_head(peer)
