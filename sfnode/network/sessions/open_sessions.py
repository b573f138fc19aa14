"""Running sessions by peer, which of two sessions with one peer stays, and what is held against peers."""

from __future__ import annotations

import logging
import time

import trio

from protocol.wire import PeerId
from sfnode.event_log import log
from sfnode.network import bounds
from sfnode.network.policy import (
    DEFAULT_ORIGINS,
    AddressBook,
    DiscouragedRow,
    Fault,
    InboundPlace,
    Origins,
    PeerVerdict,
    Reputation,
    author_of_peer,
    choose_to_evict,
    choose_to_shed,
    ip_group_of,
)
from sfnode.network.reports import NeighbourInfo
from sfnode.network.sessions.handshake import DUPLICATE, GIVE_WAY, SHORT_OF_MEMORY
from sfnode.network.sessions.session import Session


class OpenSessions:
    """At most one session per peer."""

    def __init__(self, own_peer: PeerId, origins: Origins = DEFAULT_ORIGINS) -> None:
        self._own_key = author_of_peer(own_peer)
        self._sessions: dict[PeerId, Session] = {}
        self._arriving: list[PeerId] = []
        self._reputation = Reputation()
        self._origins = origins

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

    def lasting(self) -> frozenset[PeerId]:
        """The peers that we dialled whose sessions have lasted longest."""
        outbound = [session for session in self._sessions.values() if session.is_outbound]
        outbound.sort(key=lambda session: session.started_s)
        return frozenset(session.peer for session in outbound[: bounds.ANCHORS])

    def handled(self, peer: PeerId, *, news: int, owed_bytes: float) -> None:
        """The node has handled a message of the peer: so many records in it were new, and so much it still owes."""
        session = self._sessions.get(peer)
        if session is not None:
            session.news += news
            session.owe(owed_bytes)
            session.handled.set()

    def make_place(self, peer: PeerId, host: str, inbound_max: int) -> bool:
        """Whether this peer, which dials from that IP address, gets an inbound place; somebody may have to give way."""
        if peer in self._sessions:
            return True
        places = self._inbound_places()
        if not self._origins.has_group_room(host, [place.group for place in places], inbound_max):
            return False
        if len(places) < inbound_max:
            return True
        victim = choose_to_evict(places, ip_group_of(host))
        if victim is not None:
            self._sessions[victim].say_bye(GIVE_WAY)
        return victim is not None

    def shed(self) -> bool:
        """Let the inbound neighbour go that would be missed least; False when there is none."""
        victim = choose_to_shed(self._inbound_places())
        if victim is not None:
            self._sessions[victim].say_bye(SHORT_OF_MEMORY)
        return victim is not None

    def _inbound_places(self) -> tuple[InboundPlace, ...]:
        """The inbound sessions, without those that are ending."""
        return tuple(
            InboundPlace(
                peer=peer,
                group=ip_group_of(session.channel.link.remote_host),
                started_s=session.started_s,
                news=session.news,
            )
            for peer, session in self._sessions.items()
            if not session.is_outbound and not session.is_ending
        )

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
        self._reputation.met(session.peer, trio.current_time())
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
        if new.is_outbound == old.is_outbound or new.started_s - old.started_s > bounds.SIMULTANEOUS_S:
            return True
        we_are_smaller = self._own_key < author_of_peer(new.peer)
        return new.is_outbound == we_are_smaller

    # --- what is held against peers

    def penalise(self, peer: PeerId, fault: Fault, reason: str) -> None:
        """Hold a fault against the peer; where that is enough, end its session and keep away from it."""
        now_s = trio.current_time()
        for other in self._sessions:
            self._reputation.met(other, now_s)
        verdict = self._reputation.penalise(peer, fault, now_s)
        if verdict is PeerVerdict.TOLERATED:
            return
        if verdict is PeerVerdict.SPARED:
            advice = "too many peers seem bad: is this node up to date?"
            log(logging.ERROR, "breaker_open", peer=peer, reason=reason, advice=advice)
        session = self._sessions.get(peer)
        if session is not None:
            session.say_bye(reason)

    def is_pushed_to(self, peer: PeerId) -> bool:
        """Whether new records are flooded to the peer."""
        return self._reputation.is_pushed_to(peer, trio.current_time())

    def score(self, peer: PeerId) -> float:
        """What is held against the peer; at most 0."""
        return self._reputation.score(peer, trio.current_time())

    def is_discouraged(self, peer: PeerId) -> bool:
        """Whether the peer is neither dialled nor accepted now."""
        return self._reputation.is_discouraged(peer, trio.current_time())

    def discouraged(self) -> frozenset[PeerId]:
        """All such peers."""
        return self._reputation.discouraged(trio.current_time())

    def discouraged_rows(self) -> tuple[DiscouragedRow, ...]:
        """The same, for the disk."""
        return self._reputation.rows(trio.current_time(), unix_ms=int(time.time() * 1_000))

    def restore_discouraged(self, rows: tuple[DiscouragedRow, ...]) -> None:
        """Go on keeping away from those of an earlier life."""
        self._reputation.restore(rows, trio.current_time(), unix_ms=int(time.time() * 1_000))


def info(session: Session, book: AddressBook, score: float) -> NeighbourInfo:
    """What is told of a running session."""
    known = book.addresses(session.peer)
    traffic = session.channel.traffic
    return NeighbourInfo(
        peer=session.peer,
        address=str(known[0]) if session.is_outbound and known else session.channel.link.remote_host,
        is_outbound=session.is_outbound,
        agent=session.hello.agent,
        bytes_in=traffic.bytes_in,
        bytes_out=traffic.bytes_out,
        rtt_ms=session.rtt_ms,
        score=score,
    )
