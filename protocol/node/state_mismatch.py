"""Finds out which of two machines is broken when their ledgers are equal but their states differ (SPEC 7.6)."""

from protocol import timings
from protocol.events import DropPeer, Halt
from protocol.state import Replica
from protocol.wire import PeerId


class Mismatch:
    """Checks this node's state for the node core when a neighbour claims a different one.

    A new identity is free, and such a claim takes a head of only 87 bytes. So a neighbour that has brought no new
    record makes the node do no more than hash its memory. The claim of any other neighbour makes it recount the
    ledger. Both happen in slices of a tick.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._useful: set[PeerId] = set()  # neighbours that have brought a new record
        self._claimed_by: PeerId | None = None  # None once it is no longer a neighbour
        self._is_whole = False  # of the present recount, or else the last one
        self._rest_until_ms = {False: 0, True: 0}  # by whether a recount is whole

    @property
    def is_at_work(self) -> bool:
        return self._replica.recount is not None

    def brought_news(self, peer: PeerId) -> None:
        self._useful.add(peer)

    def forget(self, peer: PeerId) -> None:
        self._useful.discard(peer)
        if peer == self._claimed_by:
            self._claimed_by = None

    def claimed(self, peer: PeerId, now_ms: int) -> None:
        """Begin a recount if it is due, because the neighbour claims the same ledger and another state."""
        is_whole = peer in self._useful
        if now_ms < self._rest_until_ms[is_whole] or (self.is_at_work and self._is_whole >= is_whole):
            return
        self._claimed_by, self._is_whole = peer, is_whole
        self._replica.begin_recount(is_whole=is_whole)

    def tick(self, now_ms: int) -> Halt | DropPeer | None:
        """Run one slice of the recount, if there is one, and return the effect of its result, if any."""
        is_sound = self._replica.recount.advance() if self._replica.recount else None
        if is_sound is None:
            return None
        self._replica.recount = None
        self._rest_until_ms[self._is_whole] = now_ms + timings.RECOUNT_REST_MS
        if not is_sound:
            return Halt(detail="the state of this node does not follow from its own ledger: a bug, or a broken machine")
        if self._is_whole and self._claimed_by is not None:
            return DropPeer(peer=self._claimed_by, reason="its state digest does not follow from its ledger")
        return None
