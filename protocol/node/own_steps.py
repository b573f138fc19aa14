"""A node's own steps: when it may start one, what it asks its worker, and what it signs of the answer (SPEC 9.2)."""

from protocol import timings
from protocol.crypto import Signer, hashing
from protocol.events import EstimateFinished, ReserveStep, StartEstimate
from protocol.node.node_config import NodeConfig
from protocol.node.snapshots import Snapshots
from protocol.node.turn import Turn


class OwnSteps:
    """Starts this node's steps and signs their updates, at most one for each step.

    Attributes:
        updates: how many this node has signed in this life.
        skipped: how many steps ended without an update.
        estimating: the step that the worker measures now, if any.
        is_worker_free: whether the worker can take a request.
    """

    def __init__(self, turn: Turn, signer: Signer, config: NodeConfig, snapshots: Snapshots) -> None:
        self.updates, self.skipped = 0, 0
        self.estimating: int | None = None
        self.is_worker_free = False
        self._turn = turn
        self._replica, self._clock, self._sync = turn.replica, turn.clock, turn.sync
        self._signer, self._config = signer, config
        self._snapshots = snapshots
        self._is_switched_on = config.is_training
        self._had_neighbours = config.neighbours_min == 0
        self._first_tick_ms: int | None = None
        self._clock.resume_after(config.reserved_step)

    # --- whether steps are left ---------------------------------------------------------------------------

    def is_admitted_for(self, step: int) -> bool:
        """Return whether an update of this node for ``step`` would count."""
        return step < self._replica.ledger.roster.counts_until(self._signer.author)

    def may_contribute(self) -> bool:
        """Return whether its next step would count: no relay, not paused, admitted, and room in the author table."""
        has_room = self._replica.ledger.has_room_for(self._signer.author)
        return self._is_switched_on and has_room and self.is_admitted_for(self._clock.next_step)

    @property
    def is_left(self) -> bool:
        """Return whether this node measures a step or may still start one."""
        return self.estimating is not None or (self.may_contribute() and not self._clock.is_finished)

    @property
    def is_finished(self) -> bool:
        """Return whether this node has no step left to sign, or the run is over for one that may not contribute."""
        if self.estimating is not None or self._clock.is_finished:
            return self.estimating is None
        if self.may_contribute() or not (self._sync.is_live or self._sync.peers == 0):
            return False
        return self._clock.authors.is_run_over(self._replica.ledger.standing_authors(), self._turn.now_ms)

    @property
    def is_waiting(self) -> bool:
        """Return whether the end of a wait may start a step without any event."""
        return self.is_worker_free and self._is_switched_on and not self._clock.is_finished

    # --- what happens -------------------------------------------------------------------------------------

    def switch(self, *, is_on: bool) -> None:
        """Start no further steps, or start them again; a relay never starts any."""
        self._is_switched_on = is_on and self._config.is_training

    def tick(self) -> None:
        """Note the first tick: the waits for neighbours begin with it."""
        if self._first_tick_ms is None:
            self._first_tick_ms = self._turn.now_ms

    def start_if_due(self) -> None:
        """Reserve the next step, then ask the worker for it, if the node may sign and the step clock says so."""
        if self.estimating is not None or not self.is_worker_free or not self._may_sign():
            return
        ledger, author = self._replica.ledger, self._signer.author
        self._clock.resume_after(ledger.highest_step(author))
        until, has_company = ledger.roster.counts_until(author), self._sync.nearest_work == 0
        step = self._clock.try_start(ledger.standing_authors(), self._turn.now_ms, has_company=has_company, until=until)
        if step is None:
            return
        self.estimating = step
        self.is_worker_free = False
        seed = hashing.seed_of(self._replica.manifest.run_id, author, step)
        directions = self._clock.affordable.chosen
        self._turn.do([ReserveStep(step=step), StartEstimate(step=step, seed=seed, directions=directions)])

    def _may_sign(self) -> bool:
        """Return whether this node may sign: not before it asked the peers for its own highest round (SPEC 9.2)."""
        if not self.may_contribute() or self._clock.is_finished or self._first_tick_ms is None:
            return False
        waited_ms = self._turn.now_ms - self._first_tick_ms
        has_enough = self._sync.peers >= self._config.neighbours_min or waited_ms >= timings.FIRST_SYNC_TIMEOUT_MS
        self._had_neighbours = self._had_neighbours or has_enough
        return self._had_neighbours and self._knows_own_rounds()

    def _knows_own_rounds(self) -> bool:
        """Return whether the ledger holds this node's highest round, as far as any neighbour can know (SPEC 9.2.3)."""
        if self._snapshots.may_train() or (self._sync.met_ms is None and not self._config.expects_peers):
            return True
        return self.is_unanswered  # goes on with the records on its disk

    @property
    def is_unanswered(self) -> bool:
        """Return whether neighbours have been silent for FIRST_SYNC_TIMEOUT_MS; a long catch-up is not silence."""
        silent_since_ms = max(self._first_tick_ms or 0, self._sync.met_ms or 0, self._sync.answered_ms)
        return self._turn.now_ms - silent_since_ms >= timings.FIRST_SYNC_TIMEOUT_MS

    def finish(self, measured: EstimateFinished) -> list[bytes]:
        """Sign what the worker has measured; return the record, which nobody may see before the disk holds it.

        Returns nothing for a step that was not asked for, or that must not be signed any more.
        """
        step = measured.step
        if step != self.estimating:
            return []
        self.estimating, self.is_worker_free = None, True
        self._clock.step_finished(self._turn.now_ms, is_measured=True, took_ms=measured.took_ms)
        ledger, author = self._replica.ledger, self._signer.author
        # SPEC 9.2.3, 9.2.4: during the measurement, a first neighbour may have come, or a record of its own for this
        # round or a later one, or the author table may have become full. A second payload would void the first.
        is_taken = ledger.highest_step(author) >= step or not ledger.has_room_for(author)
        if is_taken or not self.is_admitted_for(step) or not self._knows_own_rounds():
            self.skipped += 1
            return []
        envelope = ledger.codec.seal(self._signer, step, measured.scalars)
        self._replica.add(envelope.record)
        self.updates += 1
        return [envelope.record]

    def skip(self, step: int, *, is_worker_free: bool) -> None:
        """Go on without an update of ``step``, which the worker could not measure."""
        if step != self.estimating:
            return
        self.estimating, self.is_worker_free = None, is_worker_free
        self.skipped += 1
        self._clock.step_finished(self._turn.now_ms, is_measured=False)
