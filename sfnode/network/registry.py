"""Running sessions by peer, which of two sessions with one peer stays, and peers that are not wanted for a while."""

from __future__ import annotations

import trio

from protocol.wire import PeerId
from sfnode.network import limits
from sfnode.network.addresses import author_of_peer
from sfnode.network.greeting import DUPLICATE
from sfnode.network.session import Session


class Registry:
    """At most one session per peer."""

    def __init__(self, own_peer: PeerId) -> None:
        self._own_key = author_of_peer(own_peer)
        self._sessions: dict[PeerId, Session] = {}
        self._arriving: list[PeerId] = []
        self._discouraged_until_s: dict[PeerId, float] = {}

    def get(self, peer: PeerId) -> Session | None:
        return self._sessions.get(peer)

    def all(self) -> tuple[Session, ...]:
        return tuple(self._sessions.values())

    def peers(self) -> frozenset[PeerId]:
        return frozenset(self._sessions)

    def served(self) -> frozenset[PeerId]:
        """Peers with a running session, or with one that waits for its predecessor to end: no reason to dial them."""
        return self.peers() | frozenset(self._arriving)

    def count(self, *, is_outbound: bool) -> int:
        return sum(session.is_outbound == is_outbound for session in self._sessions.values())

    async def add(self, session: Session) -> bool:
        """Make this the peer's session, after the older one is gone; False when the older one stays."""
        while (older := self._sessions.get(session.peer)) is not None:
            if not self._replaces(session, older):
                return False
            older.say_bye(DUPLICATE)
            self._arriving.append(session.peer)
            try:
                await older.finished.wait()
            finally:
                self._arriving.remove(session.peer)
        self._sessions[session.peer] = session
        return True

    def remove(self, session: Session) -> None:
        """The session is over."""
        if self._sessions.get(session.peer) is session:
            del self._sessions[session.peer]

    def _replaces(self, new: Session, old: Session) -> bool:
        """The newest wins: a peer that restarts must not wait until we notice that its old connection is dead.

        But when both ends dialled at the same moment, both must keep the same one of the two: the one that was dialled
        by the node with the smaller key.
        """
        if new.is_outbound == old.is_outbound or new.started_s - old.started_s > limits.SIMULTANEOUS_S:
            return True
        we_are_smaller = self._own_key < author_of_peer(new.peer)
        return new.is_outbound == we_are_smaller

    # --- peers that are not wanted

    def discourage(self, peer: PeerId, seconds: float) -> None:
        """Neither dial nor accept this peer for so long."""
        self._discouraged_until_s[peer] = trio.current_time() + seconds
        if len(self._discouraged_until_s) > limits.DISCOURAGED_MAX:
            del self._discouraged_until_s[min(self._discouraged_until_s, key=self._discouraged_until_s.__getitem__)]

    def is_discouraged(self, peer: PeerId) -> bool:
        return self._discouraged_until_s.get(peer, 0.0) > trio.current_time()

    def discouraged(self) -> frozenset[PeerId]:
        """All of them, forgetting those whose time is over."""
        now_s = trio.current_time()
        self._discouraged_until_s = {p: until_s for p, until_s in self._discouraged_until_s.items() if until_s > now_s}
        return frozenset(self._discouraged_until_s)
