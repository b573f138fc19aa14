"""The running sessions by peer, the choice between two sessions with one peer, and penalties."""

import logging
import time

import trio

from protocol.wire import Message, PeerId
from sfnode.event_log import log
from sfnode.network import bounds, policy
from sfnode.network.reports import PeerState
from sfnode.network.sessions.handshake import DUPLICATE, GIVE_WAY, SHORT_OF_MEMORY
from sfnode.network.sessions.session import Session


class OpenSessions:
    """Keeps at most one session per peer, decides on inbound places and penalises peers."""

    def __init__(self, own_peer: PeerId, origins: policy.Origins = policy.ip_groups.DEFAULT_ORIGINS) -> None:
        self._own_key = policy.author_of_peer(own_peer)
        self._sessions: dict[PeerId, Session] = {}
        self._arriving: list[Session] = []  # those that wait for their predecessor to end
        self._reputation = policy.reputation.Reputation()
        self._origins = origins

    def get(self, peer: PeerId) -> Session | None:
        return self._sessions.get(peer)

    def all(self) -> tuple[Session, ...]:
        return tuple(self._sessions.values())

    def peers(self) -> frozenset[PeerId]:
        return frozenset(self._sessions)

    def served(self) -> frozenset[PeerId]:
        """Return peers that need no dial: their session runs, or waits for its predecessor to end."""
        return self.peers() | {session.peer for session in self._arriving}

    def count(self, *, is_outbound: bool) -> int:
        return sum(session.is_outbound == is_outbound for session in self._sessions.values())

    def outbound(self) -> list[Session]:
        """Return the outbound sessions, the oldest first."""
        return sorted((each for each in self.all() if each.is_outbound), key=lambda session: session.started_s)

    def send(self, peer: PeerId, message: Message) -> bool:
        """Queue a message for a neighbour without waiting; return False if it has no session or its queue is full.

        Pushed records are not queued for a peer with a bad score; it can still ask for them.
        """
        session = self._sessions.get(peer)
        is_pushed = policy.rate_limits.is_pushed(message)
        if session is None or (is_pushed and not self._reputation.is_pushed_to(peer, trio.current_time())):
            return False
        return session.send(message)

    def handled(self, peer: PeerId, *, is_question: bool, news: int, owed_bytes: float) -> None:
        """Credit the peer of a handled message with ``news`` new records, and charge it ``owed_bytes``.

        After a question, read the peer's next one.
        """
        session = self._sessions.get(peer)
        if session is not None:
            session.news += news
            session.owe(owed_bytes)
            if is_question:  # what came before the question may be handled only now
                session.handled.set()

    def make_place(self, peer: PeerId, host: str, inbound_max: int) -> bool:
        """Return whether a peer at IP address ``host`` gets an inbound place; another session may be ended for it."""
        held, now_s = self._sessions.get(peer), trio.current_time()
        if held and not (held.is_outbound and self._gives_way(held, now_s, is_to_outbound=False)):
            return True  # it takes the place of its earlier session, or none
        places = self._inbound_places()
        if not self._origins.has_group_room(host, [place.group for place in places], inbound_max):
            return False
        arriving = (each for each in self._arriving if not each.is_outbound)
        more = sum((old := self._sessions.get(each.peer)) is None or old.is_outbound for each in arriving)
        if len(places) + more < inbound_max:
            return True
        victim = policy.inbound_eviction.choose_to_evict(places, policy.ip_groups.ip_group_of(host))
        if victim is not None:
            self._sessions[victim].say_bye(GIVE_WAY)
        return victim is not None

    def shed(self) -> bool:
        """End the least useful inbound session; return False if there is none."""
        victim = policy.inbound_eviction.choose_to_shed(self._inbound_places())
        if victim is not None:
            self._sessions[victim].say_bye(SHORT_OF_MEMORY)
        return victim is not None

    def _inbound_places(self) -> tuple[policy.inbound_eviction.InboundPlace, ...]:
        """Return the inbound sessions that are not ending."""
        return tuple(
            policy.inbound_eviction.InboundPlace(
                peer=peer,
                group=policy.ip_groups.ip_group_of(session.channel.link.remote_host),
                started_s=session.started_s,
                news=session.news,
            )
            for peer, session in self._sessions.items()
            if not session.is_outbound and not session.is_ending
        )

    async def add(self, session: Session) -> bool:
        """Make this the peer's session once an older one has ended; return False if the older one stays."""
        while (older := self._sessions.get(session.peer)) is not None:
            if not self._gives_way(older, session.started_s, is_to_outbound=session.is_outbound):
                return False
            older.say_bye(DUPLICATE)
            self._arriving.append(session)
            try:
                await older.finished.wait()
            finally:
                self._arriving.remove(session)
        self._sessions[session.peer] = session
        self._reputation.met(session.peer, trio.current_time())
        return True

    def remove(self, session: Session) -> None:
        if self._sessions.get(session.peer) is session:
            del self._sessions[session.peer]

    def _gives_way(self, old: Session, new_started_s: float, *, is_to_outbound: bool) -> bool:
        """Return whether a session gives way to a new one with the same peer.

        The newer one wins: a restarted peer must not wait until we notice that its old connection is dead. If both ends
        dialled at the same time, both must keep the same session: the one dialled by the node with the smaller key.
        """
        if is_to_outbound == old.is_outbound or new_started_s - old.started_s > bounds.SIMULTANEOUS_S:
            return True
        return is_to_outbound == (self._own_key < policy.author_of_peer(old.peer))

    def describe(self, session: Session, book: policy.AddressBook) -> PeerState:
        known = book.addresses(session.peer)
        traffic = session.channel.traffic
        return PeerState(
            peer=session.peer,
            address=str(known[0]) if session.is_outbound and known else session.channel.link.remote_host,
            is_outbound=session.is_outbound,
            agent=session.hello.agent,
            bytes_in=traffic.bytes_in,
            bytes_out=traffic.bytes_out,
            rtt_ms=session.heartbeat.rtt_ms,
            score=self._reputation.score(session.peer, trio.current_time()),
        )

    # --- penalties

    def penalise(self, peer: PeerId, fault: policy.Fault, reason: str) -> None:
        """Lower the peer's score by a fault; if the score is too low, end its session and keep away from it."""
        now_s = trio.current_time()
        for other in self._sessions:
            self._reputation.met(other, now_s)
        verdict = self._reputation.penalise(peer, fault, now_s)
        if verdict is policy.reputation.PeerVerdict.TOLERATED:
            return
        if verdict is policy.reputation.PeerVerdict.SPARED:
            advice = "too many peers seem bad: is this node up to date?"
            log(logging.ERROR, "breaker_open", peer=peer, reason=reason, advice=advice)
        session = self._sessions.get(peer)
        if session is not None:
            session.say_bye(reason)

    def drop(self, peer: PeerId, reason: str) -> None:
        """Penalise a peer that sent what no honest node sends: end its session and discourage it for a day."""
        self.penalise(peer, policy.Fault.GARBAGE, reason)

    def is_discouraged(self, peer: PeerId) -> bool:
        return self._reputation.is_discouraged(peer, trio.current_time())

    def discouraged(self) -> frozenset[PeerId]:
        return self._reputation.discouraged(trio.current_time())

    def discouraged_rows(self) -> tuple[policy.DiscouragedRow, ...]:
        return self._reputation.rows(trio.current_time(), unix_ms=int(time.time() * 1_000))

    def restore_discouraged(self, rows: tuple[policy.DiscouragedRow, ...]) -> None:
        self._reputation.restore(rows, trio.current_time(), unix_ms=int(time.time() * 1_000))
