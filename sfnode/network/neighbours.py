"""The conversation with neighbours: who is refused, served files as a stranger, or taken as a neighbour; sessions from
hello to bye, and their messages on the way to the node's inbox."""

import logging
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import replace

import trio

from protocol import wire
from protocol.errors import Reject, RejectReason
from protocol.events import Event, MessageArrived, PeerJoined, PeerLeft
from protocol.wire import Hello
from sfnode.event_log import log
from sfnode.network import bounds, sessions
from sfnode.network.discovery import PeerExchange
from sfnode.network.memory_guard import MemoryGuard
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy import Address, Fault, rate_limits
from sfnode.network.sessions import file_server, handshake
from sfnode.network.transport import Host, Link, LinkBrokenError, dialable


class Introduction:
    """Names this node's addresses: those that the operator announces, or else a mapped one and the listening ones."""

    def __init__(self, config: NetworkConfig, run: sessions.ServedRun, host: Host) -> None:
        self._agent, self._name = config.agent, config.own_name
        self.run = run
        self._host = host
        self._given = self._announced = config.announce

    def mapped(self, address: Address) -> None:
        """Announce the address that the router forwards to this node."""
        self._announced = (*self._given, address)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses at which others can dial this node, with its peer id; announced ones first.

        The listening ones are among them while the network runs.
        """
        listening = [found for address in self._host.addresses for found in dialable(address)]
        return tuple(replace(address, peer=self._host.peer) for address in (*self._announced, *listening))

    def hello(self) -> Hello:
        own = (*self._announced, *(() if self._given else self._host.addresses))
        name = () if self._name is None else (self._name.text,)  # first, so that it is in the hello of many addresses
        listen = (*name, *(address.transport for address in own))
        return handshake.own_hello(
            run_id=self.run.run_id, agent=self._agent, listen=listen, head_step=self.run.head_step()
        )


class Conversation:
    """Runs one session per neighbour. Neighbours that come and go, and their messages, are events in ``inbox``.

    While the inbox is full, the readers of the sessions wait, and so do the senders.
    """

    def __init__(
        self,
        introduction: Introduction,
        exchange: PeerExchange,
        files: sessions.FileServer,
        memory: MemoryGuard,
        inbox: trio.MemorySendChannel[Event],
        open_channel: Callable[[Link], sessions.Channel],
    ) -> None:
        self.is_stopping = False
        self._run, self._introduction = introduction.run, introduction
        self._exchange, self._sessions = exchange, exchange.open_sessions
        self._files, self._memory = files, memory
        self._inbox, self._open_channel = inbox, open_channel
        self._rate_limits = rate_limits.RateLimits()

    async def dialled(self, link: Link, on_handshake: Callable[[], None]) -> None:
        """Say hello on a dialled link, then run the session to its end. RefusedError, LinkBrokenError, Reject."""
        async with aclosing(link):
            channel = self._open_channel(link)
            hello = await handshake.exchange_hello(channel, self._introduction.hello())
            on_handshake()
            await self._converse(channel, hello, is_hello_due=False)

    async def inbound(self, link: Link) -> None:
        """Await the hello on an inbound link, then refuse the peer, serve it files or run a session."""
        channel = self._open_channel(link)
        try:
            await self._receive_stranger(channel)
        except sessions.SilentError as error:
            log(logging.DEBUG, "inbound_silent", peer=link.peer)
            self._sessions.penalise(link.peer, Fault.SILENT, str(error))
        except (sessions.RefusedError, LinkBrokenError) as error:
            log(logging.DEBUG, "inbound_left", peer=link.peer, reason=str(error))
        except Reject as error:
            log(logging.WARNING, "peer_rejected", peer=link.peer, reason=str(error))
            self._sessions.drop(link.peer, str(error))
        finally:
            await link.aclose()

    async def _receive_stranger(self, channel: sessions.Channel) -> None:
        hello = await handshake.await_hello(channel)
        if hello.run_id == handshake.OBSERVER_RUN_ID:
            await self._files.wait_for_room(channel.link.remote_host)
        reason = self._reason_to_refuse(channel, hello)
        if reason is not None:
            log(logging.DEBUG, "inbound_refused", peer=channel.peer, reason=reason)
            host, bytes_max = channel.link.remote_host, bounds.HELLO_FRAME_BYTES_MAX  # the frame of a stranger
            others = (
                self._exchange.recommend(channel.peer, host, bytes_max=bytes_max) if reason == handshake.FULL else ()
            )
            await handshake.refuse(channel, reason, others)
        elif hello.run_id == handshake.OBSERVER_RUN_ID:
            await self._files.serve_stranger(channel, self._introduction.hello())
        else:
            channel.trust()
            await self._converse(channel, hello, is_hello_due=True)

    def _reason_to_refuse(self, channel: sessions.Channel, hello: wire.Hello) -> str | None:
        peer, host = channel.peer, channel.link.remote_host
        if self.is_stopping:
            return "the node stops"
        if self._sessions.is_discouraged(peer):
            return handshake.DISCOURAGED
        reason = handshake.mismatch(self._introduction.hello(), hello)
        if reason is not None:
            self._exchange.book.failed(peer, trio.current_time(), at_least_s=bounds.WRONG_RUN_S)
            return reason
        if hello.run_id == handshake.OBSERVER_RUN_ID:
            return None if self._files.has_room_for(host) else handshake.FULL
        if self._memory.state.is_full:
            return handshake.FULL
        return None if self._sessions.make_place(peer, host, self._exchange.config.inbound_max) else handshake.FULL

    async def _converse(self, channel: sessions.Channel, hello: wire.Hello, *, is_hello_due: bool) -> None:
        """Run a session unless another with this peer stays. LinkBrokenError if our hello cannot be sent."""
        session = sessions.Session(channel, hello, self._receive)
        if not await self._sessions.add(session):
            await handshake.refuse(channel, handshake.DUPLICATE)
            return
        try:
            if is_hello_due:
                await channel.send_now(self._introduction.hello())
            await self._run_session(session)
        finally:
            self._sessions.remove(session)
            session.finished.set()  # first, so that a slip in what follows lets nobody wait for ever
            self._exchange.ended(session)
            self._rate_limits.ended(session.peer)

    async def _run_session(self, session: sessions.Session) -> None:
        await self._put(PeerJoined(peer=session.peer))
        reason = "cancelled"
        try:
            self._exchange.session_opened(session)
            reason, fault = await session.run()
            if fault is not None:
                self._sessions.penalise(session.peer, fault, reason)
        finally:  # by a slip, or cancelled by one elsewhere, it ends for the node as well, which may go on
            with trio.CancelScope(shield=True):
                await self._put(PeerLeft(peer=session.peer, reason=reason))

    async def _receive(self, session: sessions.Session, message: wire.Message) -> None:
        if cost := rate_limits.cost_us(message):
            await trio.sleep(self._rate_limits.wait_s(session.peer, cost, trio.current_time()))
        is_asked_for = session.asked.take(message)
        await session.stay_within_rate(
            rate_limits.pushed_cost_bytes(message, self._run.record_bytes, is_asked_for=is_asked_for)
        )
        match message:
            case wire.PeersRequest():
                started_s = time.perf_counter()
                self._exchange.answer(session)
                seconds = time.perf_counter() - started_s
                self._rate_limits.charge(session.peer, message, seconds, trio.current_time())
            case wire.Peers():
                # [REJECT] SPEC 8: peers only on request
                if not self._exchange.receive_untrusted(session, message):
                    raise Reject(RejectReason.UNREQUESTED, "peers that were not asked for")
            case wire.ManifestRequest(offset=offset):
                session.send(file_server.manifest_part(self._run.manifest_bytes, offset))
            case wire.ManifestPart() | wire.FilePart() | wire.FileRequest():
                # [REJECT] SPEC 8.1.3: neighbours ask each other for a manifest only at the start, and never for a basis
                raise Reject(RejectReason.UNREQUESTED, f"{type(message).__name__} between neighbours")
            case _:
                session.handled = trio.Event()
                for part in rate_limits.in_turns(message, self._run.record_bytes):
                    await self._put(MessageArrived(peer=session.peer, message=part))
                if cost:  # one question at a time: its cost is known only after the answer
                    await session.handled.wait()

    async def _put(self, event: Event) -> None:
        """Put an event into the inbox, waiting while it is full; drop the event once the node has stopped reading."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._inbox.send(event)

    def handled(self, peer: wire.PeerId, message: wire.Message, *, seconds: float, news: int) -> None:
        """Charge a neighbour ``seconds`` for a handled message; credit it with ``news`` new records for its place."""
        self._rate_limits.charge(peer, message, seconds, trio.current_time())
        owed_bytes = 0.0 if news else rate_limits.handling_cost_bytes(message, self._run.record_bytes, seconds)
        is_question = rate_limits.cost_us(message) > 0
        self._sessions.handled(peer, is_question=is_question, news=news, owed_bytes=owed_bytes)
