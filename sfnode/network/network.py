"""The network of one node: owns host, sessions and address book; reports neighbours and their messages as events."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import trio

from protocol.errors import Reject, RejectReason
from protocol.events import Event, MessageArrived, PeerJoined, PeerLeft
from protocol.wire import (
    FilePart,
    FileRequest,
    Hello,
    ManifestPart,
    ManifestRequest,
    Message,
    PeerAddress,
    PeerId,
    Peers,
    PeersRequest,
)
from sfnode.event_log import log
from sfnode.network import bounds
from sfnode.network.discovery import Dialler, LocalDiscovery, MappingReport, PeerExchange, PortMapper
from sfnode.network.memory_guard import MemoryGuard
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy import (
    Address,
    AddressBook,
    DiscouragedRow,
    Fault,
    PeerRow,
    RateLimits,
    copies_cost_bytes,
    cost_us,
    in_turns,
    is_pushed,
    parse_announce,
    parse_bootstrap,
    parse_listen,
    pushed_cost_bytes,
)
from sfnode.network.reports import DialReport, NetworkStatistics, PeerState, Readiness
from sfnode.network.sessions import (
    DISCOURAGED,
    DUPLICATE,
    FILES_PROTOCOL,
    FULL,
    OBSERVER_RUN_ID,
    Channel,
    FileServer,
    NeighbourFiles,
    OpenSessions,
    RefusedError,
    ServedRun,
    Session,
    SilentError,
    Traffic,
    await_hello,
    exchange_hello,
    info,
    mismatch,
    own_hello,
    refuse,
)
from sfnode.network.transport import Host, Link, LinkBrokenError, check_can_listen, dialable
from sfnode.slips import Slips


class Network:
    """Connects one node with its neighbours. Start ``run`` in a nursery; the other methods may be called from any task.

    Neighbours that come and go, and their messages, are events in ``inbox``. While it is full, the readers of the
    sessions wait, and so do the senders. OperatorError for a bad configuration.
    """

    def __init__(
        self,
        *,
        config: NetworkConfig,
        identity_seed: bytes,
        run: ServedRun,
        inbox: trio.MemorySendChannel[Event],
        known_peers: tuple[PeerRow, ...] = (),
        slips: Slips | None = None,
    ) -> None:
        self._config = config
        self._run = run
        self._inbox = inbox
        self._listen = tuple(parse_listen(text) for text in config.listen)
        self._given = self._announce = tuple(parse_announce(text) for text in config.announce)
        bootstrap = tuple(parse_bootstrap(text) for text in config.bootstrap)
        self._files = FileServer(run, self._channel, config.origins)
        self.slips = slips or Slips()
        self._host = Host(
            identity_seed=identity_seed, on_inbound=self._on_inbound, origins=config.origins, slips=self.slips
        )
        self.peer = self._host.peer
        self._total = Traffic(upload_bytes_per_s=config.upload_bytes_per_s)
        self._book = AddressBook(own_peer=self.peer, bootstrap=bootstrap, chance=random.Random())
        self._book.restore(known_peers)
        self._open_sessions = OpenSessions(self.peer, config.origins)
        self.neighbour_files = NeighbourFiles(self._host, self._open_sessions, self._channel, self.slips)
        self._exchange = PeerExchange(config=config, book=self._book, open_sessions=self._open_sessions)
        self._dialler = Dialler(
            host=self._host,
            book=self._book,
            open_sessions=self._open_sessions,
            exchange=self._exchange,
            run_session=self._on_dialled,
            slips=self.slips,
        )
        self._rate_limits = RateLimits()
        self._memory = MemoryGuard(config.memory, self._open_sessions.shed)
        self._mapper = PortMapper(listening=lambda: self._host.addresses, on_mapped=self._on_mapped)
        held = self._open_sessions.penalise
        self._host.guard.on_refused = lambda peer: held(PeerId(peer), Fault.STREAMS, "too many streams at once")
        self._host.on_garbage = lambda peer, reason: held(peer, Fault.GARBAGE, reason)
        self._host.serve_beside(FILES_PROTOCOL, partial(self._files.serve_neighbour, open_sessions=self._open_sessions))
        self._is_stopping = False

    async def run(self, *, task_status: Readiness = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, then say bye to all neighbours within STOP_S.

        ``started`` gets ``addresses``. OperatorError if an address cannot be listened on.
        """
        await check_can_listen(self._listen)
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_set_when_cancelled, stop)
            with trio.CancelScope(shield=True):
                await self._serve(stop, task_status)

    async def _serve(self, stop: trio.Event, task_status: Readiness) -> None:
        async with self._host.running(self._listen), trio.open_nursery() as nursery:
            outlive = self.slips.outlive
            nursery.start_soon(outlive, "upkeep", self._dialler.run)
            nursery.start_soon(outlive, "memory guard", self._memory.run)
            if self._config.local_discovery and not self._config.neighbours_fixed:
                own = self.peer, self._run.run_id, lambda: self._host.addresses
                nursery.start_soon(outlive, "discovery", LocalDiscovery(*own, self._on_found_nearby).run)
            if self._config.port_mapping:
                nursery.start_soon(outlive, "port mapping", self._mapper.run)
            task_status.started(self.addresses)
            await stop.wait()
            await self._say_bye_to_all()
            nursery.cancel_scope.cancel()

    async def _say_bye_to_all(self) -> None:
        self._is_stopping = True
        self._remember_anchors()
        self._dialler.stop_dialling()
        await self._host.stop_listening()
        sessions = self._open_sessions.all()
        for session in sessions:
            session.say_bye("the node stops")
        with trio.move_on_after(self._config.timings.bye_s + bounds.CLOSE_S):
            for session in sessions:
                await session.finished.wait()

    # --- methods that the node calls

    def send(self, peer: PeerId, message: Message) -> bool:
        """Queue a message for a neighbour without waiting; return False if it has no session or its queue is full.

        Pushed records are not queued for a peer with a bad score; it can still ask for them.
        """
        session = self._open_sessions.get(peer)
        if session is None or (is_pushed(message) and not self._open_sessions.is_pushed_to(peer)):
            return False
        return session.send(message)

    def drop(self, peer: PeerId, *, reason: str) -> None:
        """Penalise a peer that sent what no honest node sends: end its session and discourage it for a day."""
        self._open_sessions.penalise(peer, Fault.GARBAGE, reason)

    def handled(self, peer: PeerId, message: Message, *, seconds: float, news: int) -> None:
        """Charge a neighbour ``seconds`` for a handled message; credit it with ``news`` new records for its place."""
        self._rate_limits.charge(peer, message, seconds, trio.current_time())
        owed_bytes = 0.0 if news else copies_cost_bytes(message, self._run.record_bytes, seconds)
        self._open_sessions.handled(peer, news=news, owed_bytes=owed_bytes)

    def neighbours(self) -> tuple[PeerState, ...]:
        """Return a description of every running session."""
        return tuple(info(each, self._book, self._open_sessions.score(each.peer)) for each in self._open_sessions.all())

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses at which others can dial this node, with its peer id; announced ones first. Set in ``run``."""
        listening = [found for address in self._host.addresses for found in dialable(address)]
        return tuple(f"{address.transport}/p2p/{self.peer}" for address in (*self._announce, *listening))

    def known_peers(self) -> tuple[PeerRow, ...]:
        """Return the address book for the disk; pass it to the next Network as ``known_peers``."""
        self._remember_anchors()
        return self._book.rows()

    def discouraged_peers(self) -> tuple[DiscouragedRow, ...]:
        """Return the discouraged peers for the disk; pass them to ``restore_discouraged`` of the next Network."""
        return self._open_sessions.discouraged_rows()

    def restore_discouraged(self, rows: tuple[DiscouragedRow, ...]) -> None:
        """Take over the discouraged peers of an earlier Network. Call it before ``run``, inside trio."""
        self._open_sessions.restore_discouraged(rows)

    @property
    def reached_bootstraps(self) -> tuple[str, ...]:
        """The bootstraps to pass to the next Network: islands meet again through them."""
        return self._book.reached_bootstraps()

    def _remember_anchors(self) -> None:
        """Mark the longest-lasting outbound neighbours as met last, so that newer ones do not replace these anchors."""
        lasting = self._open_sessions.lasting()
        if not lasting <= self._book.anchors():  # else nothing has changed
            for peer in lasting:
                self._book.still_good(peer, unix_ms=int(time.time() * 1_000))

    @property
    def dial_reports(self) -> tuple[DialReport, ...]:
        """The addresses that do not work now, with the reasons."""
        return self._dialler.reports

    @property
    def mapping_report(self) -> MappingReport | None:
        """The outcome of the request for a port of the router; None until it is known."""
        return self._mapper.report

    def statistics(self) -> NetworkStatistics:
        """Return the figures of the network now."""
        worst = max(self.dial_reports, key=lambda report: report.failures, default=None)
        return NetworkStatistics(
            bytes_in=self._total.bytes_in,
            bytes_out=self._total.bytes_out,
            frames_in=self._total.frames_in,
            frames_out=self._total.frames_out,
            sessions_inbound=self._open_sessions.count(is_outbound=False),
            sessions_outbound=self._open_sessions.count(is_outbound=True),
            streams_failed=self._host.guard.failures,
            streams_refused=self._host.guard.refused,
            memory=self._memory.state,
            expects_peers=bool(self.known_peers()),
            unreached="" if worst is None else f"{worst.address}: {worst.reason}",
        )

    # --- sessions

    async def _on_dialled(self, link: Link, on_handshake: Callable[[], None]) -> None:
        """Say hello on a dialled link, then run the session to its end. RefusedError, LinkBrokenError, Reject."""
        try:
            channel = self._channel(link)
            hello = await exchange_hello(channel, self._hello())
            on_handshake()
            await self._run_if_first(Session(channel, hello, self._on_message), is_hello_due=False)
        finally:
            await link.aclose()

    async def _on_inbound(self, link: Link) -> None:
        """Await the hello on an inbound link, then refuse the peer, serve it files or run a session."""
        channel = self._channel(link)
        try:
            await self._receive_stranger(channel)
        except SilentError as error:
            log(logging.DEBUG, "inbound_silent", peer=link.peer)
            self._open_sessions.penalise(link.peer, Fault.SILENT, str(error))
        except RefusedError as error:
            log(logging.DEBUG, "inbound_left", peer=link.peer, reason=str(error))
        except LinkBrokenError as error:
            log(logging.DEBUG, "inbound_lost", peer=link.peer, reason=str(error))
        except Reject as error:
            log(logging.WARNING, "peer_rejected", peer=link.peer, reason=str(error))
            self._open_sessions.penalise(link.peer, Fault.GARBAGE, str(error))
        finally:
            await link.aclose()

    async def _receive_stranger(self, channel: Channel) -> None:
        hello = await await_hello(channel)
        reason = self._reason_to_refuse(channel, hello)
        if reason is not None:
            log(logging.DEBUG, "inbound_refused", peer=channel.peer, reason=reason)
            await refuse(channel, reason, self._recommend(channel) if reason == FULL else ())
        elif hello.run_id == OBSERVER_RUN_ID:
            await self._files.serve_stranger(channel, self._hello())
        else:
            channel.trust()
            await self._run_if_first(Session(channel, hello, self._on_message), is_hello_due=True)

    def _reason_to_refuse(self, channel: Channel, hello: Hello) -> str | None:
        if self._is_stopping:
            return "the node stops"
        if self._open_sessions.is_discouraged(channel.peer):
            return DISCOURAGED
        reason = mismatch(self._hello(), hello)
        if reason is not None:
            self._book.failed(channel.peer, trio.current_time(), at_least_s=bounds.WRONG_RUN_S)
            return reason
        if hello.run_id == OBSERVER_RUN_ID:
            return None if self._files.has_room_for(channel.link.remote_host) else FULL
        if self._memory.state.is_full:
            return FULL
        has_place = self._open_sessions.make_place(channel.peer, channel.link.remote_host, self._config.inbound_max)
        return None if has_place else FULL

    async def _run_if_first(self, session: Session, *, is_hello_due: bool) -> None:
        """Run the session unless another with this peer stays. LinkBrokenError if our hello cannot be sent."""
        if not await self._open_sessions.add(session):
            await refuse(session.channel, DUPLICATE)
            return
        try:
            if is_hello_due:
                await session.channel.send_now(self._hello())
            await self._run_session(session)
        finally:
            self._open_sessions.remove(session)
            self._exchange.ended(session.peer)
            self._rate_limits.ended(session.peer)
            self._book.pause(session.peer, trio.current_time())
            self._dialler.wake()
            session.finished.set()

    async def _run_session(self, session: Session) -> None:
        await self._tell(PeerJoined(peer=session.peer))
        reason, is_told = "cancelled", False
        try:
            self._exchange.session_opened(session)
            self._dialler.wake()
            end = await session.run()
            reason = end.reason
            if end.fault is not None:
                self._open_sessions.penalise(session.peer, end.fault, reason)
            await self._tell(PeerLeft(peer=session.peer, reason=reason))
            is_told = True
        finally:
            if not is_told:  # cancelled: do not wait for room in the inbox
                with suppress(trio.WouldBlock, trio.BrokenResourceError):
                    self._inbox.send_nowait(PeerLeft(peer=session.peer, reason=reason))

    async def _on_message(self, session: Session, message: Message) -> None:
        if cost := cost_us(message):
            await trio.sleep(self._rate_limits.wait_s(session.peer, cost, trio.current_time()))
        is_asked_for = session.asked.take(message)
        await session.stay_within_rate(pushed_cost_bytes(message, self._run.record_bytes, is_asked_for=is_asked_for))
        match message:
            case PeersRequest():
                self._exchange.answer(session)
            case Peers():
                # [REJECT] SPEC 8: peers only on request
                if not self._exchange.receive_untrusted(session, message):
                    raise Reject(RejectReason.UNREQUESTED, "peers that were not asked for")
                self._dialler.wake()
            case ManifestRequest(offset=offset):
                session.send(self._files.manifest_part(offset))
            case ManifestPart() | FilePart() | FileRequest():
                # [REJECT] SPEC 8.1.3: neighbours ask each other for a manifest only at the start, and never for a basis
                raise Reject(RejectReason.UNREQUESTED, f"{type(message).__name__} between neighbours")
            case _:
                handled = session.expect_handled()
                for part in in_turns(message, self._run.record_bytes):
                    await self._tell(MessageArrived(peer=session.peer, message=part))
                if cost:  # one question at a time: its cost is known only after the answer
                    await handled.wait()

    async def _tell(self, event: Event) -> None:
        """Put an event into the inbox, waiting while it is full; drop the event once the node has stopped reading."""
        with suppress(trio.BrokenResourceError):
            await self._inbox.send(event)

    def _on_found_nearby(self, address: Address) -> None:
        if self._exchange.found_nearby(address):
            self._dialler.wake()

    def _on_mapped(self, address: Address) -> None:
        self._announce = (*self._given, address)
        self._exchange.know_own(address)

    def _channel(self, link: Link) -> Channel:
        return Channel(link, self._config.timings, self._total)

    def _hello(self) -> Hello:
        own = (*self._announce, *(() if self._given else self._host.addresses))
        listen = tuple(address.transport for address in own)
        return own_hello(
            run_id=self._run.run_id, agent=self._config.agent, listen=listen, head_step=self._run.head_step()
        )

    def _recommend(self, channel: Channel) -> tuple[PeerAddress, ...]:
        """Return peers to dial instead of this full node, as many as fit into the frame of a stranger."""
        return self._exchange.recommend(channel.peer, channel.link.remote_host, bytes_max=bounds.HELLO_FRAME_BYTES_MAX)


async def _set_when_cancelled(event: trio.Event) -> None:
    try:
        await trio.sleep_forever()
    finally:
        event.set()
