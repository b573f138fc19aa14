"""Equal ledgers, different states: which of the two machines is broken? (SPEC 7.6)"""

from __future__ import annotations

from protocol import timings
from protocol.events import DropPeer, Halt
from protocol.state import Recount, Replica
from protocol.wire import PeerId


class Mismatch:
    """Owned by the node core. Neighbours that say so cost some slices of a tick, and the more only if they were useful.

    An identity costs nothing, and such a head 87 bytes: whoever has brought nothing new makes a node do no more than
    hash what it has in memory.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._useful: set[PeerId] = set()  # neighbours that have brought a record that was new
        self._recount: Recount | None = None
        self._claimed_by: PeerId | None = None  # while it is a neighbour
        self._is_whole = False  # the recount under way, or the last one
        self._rest_until_ms = {False: 0, True: 0}  # of recounts that are whole, and of others

    @property
    def is_at_work(self) -> bool:
        """Whether a recount is under way."""
        return self._recount is not None

    def brought_news(self, peer: PeerId) -> None:
        """The neighbour has brought a record that was new."""
        self._useful.add(peer)

    def forget(self, peer: PeerId) -> None:
        """The neighbour went."""
        self._useful.discard(peer)
        if peer == self._claimed_by:
            self._claimed_by = None

    def claimed(self, peer: PeerId, now_ms: int) -> None:
        """The neighbour says that it holds the same ledger, and another state."""
        is_whole = peer in self._useful
        if now_ms < self._rest_until_ms[is_whole] or (self._recount and self._is_whole >= is_whole):
            return
        self._claimed_by, self._is_whole = peer, is_whole
        self._recount = self._replica.begin_recount(is_whole=is_whole)

    def tick(self, now_ms: int) -> Halt | DropPeer | None:
        """One slice of the recount, if one is under way; what is to be done when it ends."""
        is_sound = self._recount.advance() if self._recount else None
        if is_sound is None:
            return None
        self._recount = None
        self._replica.end_recount()
        self._rest_until_ms[self._is_whole] = now_ms + timings.RECOUNT_REST_MS
        if not is_sound:
            return Halt(detail="the state of this node does not follow from its own ledger: a bug, or a broken machine")
        if self._is_whole and self._claimed_by is not None:
            return DropPeer(peer=self._claimed_by, reason="its state digest does not follow from its ledger")
        return None
