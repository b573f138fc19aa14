"""When a run is over for a node and for all that it can hear of: nobody has work, and all hold the same set (SPEC 9.6).

Each node tells its neighbours how far away the nearest node is that has still something to do. Where nobody has, each
distance grows past its neighbours' until it reaches the horizon; then no update can come any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol import timings
from protocol.crypto import Author
from protocol.ledger import Ledger
from protocol.limits import WORK_DISTANCE_MAX
from protocol.node.node_config import NodeConfig
from protocol.node.step_clock import StepClock
from protocol.sync import Agreement, Synchroniser


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a node that may leave would leave behind.

    Attributes:
        equal: neighbours whose last root is this node's; those that have left with it count.
        differing: neighbours with another root, or that have not told theirs.
        awaited: authors at work whose last round is not here.
        work_distance: sessions to the nearest node that has work; WORK_DISTANCE_MAX: none is within reach.
        is_over: whether this node has done its part, and nothing is missing.
        is_given_up: whether it has, and has waited for the rest for long enough.
    """

    equal: int = 0
    differing: int = 0
    awaited: tuple[Author, ...] = ()
    work_distance: int = 0
    is_over: bool = False
    is_given_up: bool = False


class EndOfRun:
    """Owned by the node core. Keeps the distance that this node tells, and for how long it has waited for others."""

    def __init__(self, ledger: Ledger, clock: StepClock, sync: Synchroniser, config: NodeConfig) -> None:
        self.ending = Ending()
        self._ledger = ledger
        self._clock = clock
        self._sync = sync
        self._expects_peers = config.expects_peers
        self._told = 0  # the distance that all neighbours were told last, and when
        self._told_ms = 0
        self._finished_ms: int | None = None

    @property
    def work_distance(self) -> int:
        """What the next head says."""
        return self.ending.work_distance

    def look(self, *, has_work: bool, is_finished: bool, now_ms: int) -> None:
        """Look again.

        ``has_work``: this node may still sign, or has not taken in what it has asked for. ``is_finished``: no step is
        left for it.
        """
        if has_work:  # most of the time: a short way
            self.ending, self._finished_ms = Ending(), None
            return
        agreement = self._sync.agreement()
        awaited = tuple(self._clock.awaited(self._ledger.authors(), now_ms))
        is_held = bool(awaited or agreement.differing)
        distance = self._distance(agreement, is_held=is_held)
        if self._finished_ms is None or not is_finished:
            self._finished_ms = now_ms
        is_compared = agreement.equal > 0 or not (self._expects_peers or self._sync.has_met)
        is_work_near = self._sync.peers > 0 and distance < WORK_DISTANCE_MAX
        limit_ms = timings.END_WAIT_MS_MAX if self._sync.peers else timings.FIRST_SYNC_TIMEOUT_MS
        self.ending = Ending(
            equal=agreement.equal,
            differing=agreement.differing,
            awaited=awaited,
            work_distance=distance,
            is_over=is_finished and is_compared and not is_held and not is_work_near,
            is_given_up=is_finished and now_ms - self._finished_ms >= limit_ms,
        )

    def _distance(self, agreement: Agreement, *, is_held: bool) -> int:
        """One more than the nearest neighbour's; it does not rise while the node is held, or has no neighbour."""
        if agreement.nearest is None:
            return self.work_distance
        distance = min(WORK_DISTANCE_MAX, agreement.nearest + 1)
        return min(distance, self.work_distance) if is_held else distance

    def must_tell(self, now_ms: int) -> bool:
        """Whether the neighbours are to be told now; True counts as told."""
        if self._told == self.work_distance or now_ms - self._told_ms < timings.WORK_TOLD_MS:
            return False
        self._told, self._told_ms = self.work_distance, now_ms
        return True

    def rest_ms(self, now_ms: int) -> int:
        """How long until the neighbours are to be told; REST_MS_MAX when nothing has changed."""
        if self._told == self.work_distance:
            return timings.REST_MS_MAX
        return max(0, self._told_ms + timings.WORK_TOLD_MS - now_ms)
