"""The conversation with neighbours: sessions from hello to bye, and their messages on the way to the node's inbox."""

from __future__ import annotations

from contextlib import suppress

import trio

from protocol import wire
from protocol.errors import Reject, RejectReason
from protocol.events import Event, MessageArrived, PeerJoined, PeerLeft
from sfnode.network.discovery import PeerExchange
from sfnode.network.introduction import Introduction
from sfnode.network.policy import rate_limits
from sfnode.network.sessions import Channel, OpenSessions, ServedRun, Session, handshake, manifest_part


class Conversation:
    """Runs one session per neighbour. Neighbours that come and go, and their messages, are events in ``inbox``.

    While the inbox is full, the readers of the sessions wait, and so do the senders.
    """

    def __init__(
        self,
        run: ServedRun,
        introduction: Introduction,
        sessions: OpenSessions,
        exchange: PeerExchange,
        inbox: trio.MemorySendChannel[Event],
    ) -> None:
        self._run = run
        self._introduction = introduction
        self._sessions = sessions
        self._exchange = exchange
        self._inbox = inbox
        self._rate_limits = rate_limits.RateLimits()

    async def run(self, channel: Channel, hello: wire.Hello, *, is_hello_due: bool) -> None:
        """Run a session unless another with this peer stays. LinkBrokenError if our hello cannot be sent."""
        session = Session(channel, hello, self._receive)
        if not await self._sessions.add(session):
            await handshake.refuse(channel, handshake.DUPLICATE)
            return
        try:
            if is_hello_due:
                await channel.send_now(self._introduction.hello())
            await self._run_session(session)
        finally:
            self._sessions.remove(session)
            self._exchange.ended(session.peer)
            self._rate_limits.ended(session.peer)
            session.finished.set()

    async def _run_session(self, session: Session) -> None:
        await self._put(PeerJoined(peer=session.peer))
        reason, is_reported = "cancelled", False
        try:
            self._exchange.session_opened(session)
            end = await session.run()
            reason = end.reason
            if end.fault is not None:
                self._sessions.penalise(session.peer, end.fault, reason)
            await self._put(PeerLeft(peer=session.peer, reason=reason))
            is_reported = True
        finally:
            if not is_reported:  # cancelled: do not wait for room in the inbox
                with suppress(trio.WouldBlock, trio.BrokenResourceError):
                    self._inbox.send_nowait(PeerLeft(peer=session.peer, reason=reason))

    async def _receive(self, session: Session, message: wire.Message) -> None:
        if cost := rate_limits.cost_us(message):
            await trio.sleep(self._rate_limits.wait_s(session.peer, cost, trio.current_time()))
        is_asked_for = session.asked.take(message)
        await session.stay_within_rate(
            rate_limits.pushed_cost_bytes(message, self._run.record_bytes, is_asked_for=is_asked_for)
        )
        match message:
            case wire.PeersRequest():
                self._exchange.answer(session)
            case wire.Peers():
                # [REJECT] SPEC 8: peers only on request
                if not self._exchange.receive_untrusted(session, message):
                    raise Reject(RejectReason.UNREQUESTED, "peers that were not asked for")
            case wire.ManifestRequest(offset=offset):
                session.send(manifest_part(self._run.manifest_bytes, offset))
            case wire.ManifestPart() | wire.FilePart() | wire.FileRequest():
                # [REJECT] SPEC 8.1.3: neighbours ask each other for a manifest only at the start, and never for a basis
                raise Reject(RejectReason.UNREQUESTED, f"{type(message).__name__} between neighbours")
            case _:
                handled = session.expect_handled()
                for part in rate_limits.in_turns(message, self._run.record_bytes):
                    await self._put(MessageArrived(peer=session.peer, message=part))
                if cost:  # one question at a time: its cost is known only after the answer
                    await handled.wait()

    async def _put(self, event: Event) -> None:
        """Put an event into the inbox, waiting while it is full; drop the event once the node has stopped reading."""
        with suppress(trio.BrokenResourceError):
            await self._inbox.send(event)

    def handled(self, peer: wire.PeerId, message: wire.Message, *, seconds: float, news: int) -> None:
        """Charge a neighbour ``seconds`` for a handled message; credit it with ``news`` new records for its place."""
        self._rate_limits.charge(peer, message, seconds, trio.current_time())
        owed_bytes = 0.0 if news else rate_limits.copies_cost_bytes(message, self._run.record_bytes, seconds)
        self._sessions.handled(peer, news=news, owed_bytes=owed_bytes)
