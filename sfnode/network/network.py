"""The network of one node: builds its parts, runs them together, and lets them end politely."""

import math
import random
import time
from functools import partial

import trio

from protocol.events import Event
from protocol.wire import PeerId
from sfnode.network import bounds, sessions
from sfnode.network.discovery import Dialler, LocalDiscovery, PeerExchange, PortMapper
from sfnode.network.memory_guard import MemoryGuard
from sfnode.network.neighbours import Conversation, Introduction
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy import Address, AddressBook, Fault, NameBook, PeerRow
from sfnode.network.reports import NetworkStatistics, PeerState, Readiness
from sfnode.network.transport import Host, check_can_listen
from sfnode.unexpected_errors import Slips


class Network:
    """Connects one node with its neighbours. Start ``run`` in a nursery; its parts may be called from any task.

    Neighbours that come and go, and their messages, are events in ``inbox``. While it is full, the readers of the
    sessions wait, and so do the senders.

    Attributes:
        sessions: sends to neighbours and drops them; keeps the discouraged peers.
        conversation: learns here what the messages of neighbours have cost the node.
        introduction: the addresses at which others can dial this node.
        names: those of other nodes.
        book: what is known of peers.
        dialler, mapper: report addresses that do not work, and the router's port.
        neighbour_files: downloads from neighbours.
    """

    def __init__(
        self,
        *,
        config: NetworkConfig,
        identity_seed: bytes,
        run: sessions.ServedRun,
        inbox: trio.MemorySendChannel[Event],
        known_peers: tuple[PeerRow, ...] = (),
        slips: Slips | None = None,
    ) -> None:
        self._config = config
        self._run_id, self._inbox = run.run_id, inbox.clone()
        self.slips = slips or Slips()
        self._host = Host(
            identity_seed=identity_seed,
            on_inbound=lambda link: self.conversation.inbound(link),  # noqa: PLW0108  # they need this host
            origins=config.origins,
            slips=self.slips,
        )
        self.peer = self._host.peer
        self._total = sessions.Traffic(upload_bytes_per_s=config.upload_bytes_per_s)
        open_channel = partial(sessions.Channel, timings=config.timings, total=self._total)
        self.introduction = Introduction(config, run, self._host)
        self.book = AddressBook(own_peer=self.peer, bootstrap=config.bootstrap, chance=random.Random())
        self.book.restore(() if config.neighbours_fixed else known_peers)
        self._has_met_others = bool(known_peers)
        self.names = NameBook(run.run_id)
        if config.own_name is not None:
            self.names.hear(self.peer, (config.own_name.text,))
        self.sessions = sessions.OpenSessions(self.peer, config.origins)
        self._exchange = PeerExchange(config=config, names=self.names, book=self.book, open_sessions=self.sessions)
        self._memory = MemoryGuard(config.memory, self.sessions.shed)
        self._files = sessions.FileServer(run, open_channel, config.origins, config.upload_bytes_per_s / 2 or math.inf)
        self.neighbour_files = sessions.NeighbourFiles(self._host, self.sessions, open_channel, self.slips)
        self.conversation = Conversation(
            self.introduction, self._exchange, self._files, self._memory, self._inbox, open_channel
        )
        self.dialler = Dialler(self._host, self._exchange, self.conversation.dialled, self.slips)
        self.mapper = PortMapper(listening=lambda: self._host.addresses, on_mapped=self._on_mapped)
        held = self.sessions.penalise
        self._host.guard.on_refused = lambda peer: held(PeerId(peer), Fault.STREAMS, "too many streams at once")
        self._host.on_garbage = self.sessions.drop
        self._host.serve_beside(
            sessions.FILES_PROTOCOL, partial(self._files.serve_neighbour, open_sessions=self.sessions)
        )

    async def run(self, *, task_status: Readiness = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, then say bye to all neighbours within STOP_S.

        ``started`` gets the addresses. OperatorError if an address cannot be listened on.
        """
        await check_can_listen(self._config.listen)
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve, stop, task_status)
            try:
                await trio.sleep_forever()
            finally:
                stop.set()
                self._inbox.close()  # the node reads no more: what waits for room there is dropped

    async def _serve(self, stop: trio.Event, task_status: Readiness) -> None:
        outlive = self.slips.outlive
        with trio.CancelScope(shield=True):
            async with self._host.running(self._config.listen), trio.open_nursery() as nursery:
                nursery.start_soon(outlive, "upkeep", self.dialler.run)
                nursery.start_soon(outlive, "memory guard", self._memory.run)
                if self._config.local_discovery and not self._config.neighbours_fixed:
                    own = self.peer, self._run_id, lambda: self._host.addresses
                    nursery.start_soon(outlive, "discovery", LocalDiscovery(*own, self._exchange.found_nearby).run)
                if self._config.port_mapping:
                    nursery.start_soon(outlive, "port mapping", self.mapper.run)
                task_status.started(self.introduction.addresses)
                await stop.wait()
                await self._say_bye_to_all()
                nursery.cancel_scope.cancel()

    async def _say_bye_to_all(self) -> None:
        self.conversation.is_stopping = True
        self._remember_anchors()
        self.dialler.is_stopping = True
        await self._host.stop_listening()
        running = self.sessions.all()
        for session in running:
            session.say_bye("the node stops")
        with trio.move_on_after(self._config.timings.bye_s + bounds.CLOSE_S):
            for session in running:
                await session.finished.wait()

    def _on_mapped(self, address: Address) -> None:
        self.introduction.mapped(address)
        self._exchange.know_own(address)

    # --- what it knows

    def neighbours(self) -> tuple[PeerState, ...]:
        return tuple(self.sessions.describe(each, self.book) for each in self.sessions.all())

    def known_peers(self) -> tuple[PeerRow, ...]:
        """Return the address book for the disk; pass it to the next Network as ``known_peers``."""
        self._remember_anchors()
        return self.book.rows()

    def _remember_anchors(self) -> None:
        """Mark the longest-lasting outbound neighbours as met last, so that newer ones do not replace these anchors."""
        lasting = {session.peer for session in self.sessions.outbound()[: bounds.ANCHORS]}
        if not lasting <= self.book.anchors():  # else nothing has changed
            for peer in lasting:
                self.book.still_good(peer, unix_ms=int(time.time() * 1_000))

    @property
    def expects_peers(self) -> bool:
        """Return whether others are known: to dial or, with ``neighbours_fixed``, met earlier; they may dial in."""
        return self._has_met_others or bool(self.book)

    def statistics(self) -> NetworkStatistics:
        worst = max(self.dialler.reports, key=lambda report: (report.is_expected, report.failures), default=None)
        return NetworkStatistics(
            bytes_in=self._total.bytes_in,
            bytes_out=self._total.bytes_out,
            frames_in=self._total.frames_in,
            frames_out=self._total.frames_out,
            sessions_inbound=self.sessions.count(is_outbound=False),
            sessions_outbound=self.sessions.count(is_outbound=True),
            streams_failed=self._host.guard.failures,
            streams_refused=self._host.guard.refused,
            memory=self._memory.state,
            expects_peers=self.expects_peers,
            unreached="" if worst is None else f"{worst.address}: {worst.reason}",
        )
