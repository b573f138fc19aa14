"""Decides when a run is over for a node: no node in reach has work, and all hold the same set (SPEC 9.6).

Each node sends its neighbours its distance to the nearest node that still has work. When no node has any, each distance
grows past those of its neighbours until it reaches WORK_DISTANCE_MAX. Then no update can come any more.
"""

from dataclasses import dataclass

from protocol import timings
from protocol.ledger import Ledger
from protocol.limits import WORK_DISTANCE_MAX
from protocol.node.authors_at_work import AuthorsAtWork
from protocol.node.node_config import NodeConfig
from protocol.sync import Synchroniser


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a node knows about the end of its run.

    Attributes:
        equal_peers: neighbours whose last root is this node's, including those that left with it.
        full_peers: neighbours apart for good: what they hold beyond this node's root has no place in its author table.
        differing_peers: other neighbours with another root, or without a head yet.
        awaited_authors: number of authors at work whose last round is not here.
        work_distance: sessions to the nearest node that has work; WORK_DISTANCE_MAX: none is within reach.
        is_over: whether this node has done its part and nothing is missing.
        is_given_up: whether this node has done its part and has waited long enough for the rest.
    """

    equal_peers: int = 0
    full_peers: int = 0
    differing_peers: int = 0
    awaited_authors: int = 0
    work_distance: int = 0
    is_over: bool = False
    is_given_up: bool = False


class EndOfRun:
    """Keeps this node's distance to work, and how long it has waited for others, for the node core."""

    def __init__(self, ledger: Ledger, authors: AuthorsAtWork, sync: Synchroniser, config: NodeConfig) -> None:
        self.ending = Ending()
        self._ledger = ledger
        self._authors = authors
        self._sync = sync
        self._expects_peers = config.expects_peers
        self._told = 0  # the distance last sent to all neighbours, and when
        self._told_ms = 0
        self._finished_ms: int | None = None

    def look(self, *, has_work: bool, is_summed: bool, is_finished: bool, now_ms: int) -> None:
        """Update ``ending``.

        ``has_work``: this node may still sign, or still has records to get; ``is_summed``: none waits to be summed;
        ``is_finished``: no step is left.
        """
        if has_work or not is_summed:  # the usual case, without the cost of a comparison
            # Others can make a node sum again and again, so that does not begin the wait anew.
            self.ending, self._finished_ms = Ending(), None if has_work else self._finished_ms
            return
        (equal, full, differing), nearest = self._sync.agreement(), self._sync.nearest_work
        awaited = len(self._authors.awaited(self._ledger.standing_authors(), now_ms))
        is_held = bool(awaited or differing)
        # One more than the nearest neighbour's distance. It does not rise without a head, nor above 1 while anything is
        # missing: this node has no work itself, and a lone author waits for a neighbour that says 0 (SPEC 9.1.4).
        distance = self.ending.work_distance if nearest is None else min(WORK_DISTANCE_MAX, nearest + 1)
        if is_held:
            distance = min(distance, max(1, self.ending.work_distance))
        if self._finished_ms is None or not is_finished:
            self._finished_ms = now_ms
        is_compared = equal + full > 0 or not (self._expects_peers or self._sync.met_ms is not None)
        is_work_near = self._sync.peers > 0 and distance < WORK_DISTANCE_MAX
        limit_ms = timings.END_WAIT_MS_MAX if self._sync.peers else timings.FIRST_SYNC_TIMEOUT_MS
        self.ending = Ending(
            equal_peers=equal,
            full_peers=full,
            differing_peers=differing,
            awaited_authors=awaited,
            work_distance=distance,
            is_over=is_finished and is_compared and not is_held and not is_work_near,
            is_given_up=is_finished and now_ms - self._finished_ms >= limit_ms,
        )

    def must_tell(self, now_ms: int) -> bool:
        """Return whether to send the distance to the neighbours now; True counts as sent."""
        if self._told == self.ending.work_distance or now_ms - self._told_ms < timings.WORK_TOLD_MS:
            return False
        self._told, self._told_ms = self.ending.work_distance, now_ms
        return True

    def rest_ms(self, now_ms: int) -> int:
        """Return how long until the distance must be sent, REST_MS_MAX when it has not changed."""
        if self._told == self.ending.work_distance:
            return timings.REST_MS_MAX
        return max(0, self._told_ms + timings.WORK_TOLD_MS - now_ms)
