"""Upkeep of the neighbourhood: whom to dial and when, what to learn from neighbours and tell them of others."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import trio

from protocol.errors import Reject
from protocol.wire import PeerAddress, PeerId, Peers, PeersRequest
from sfnode.network import limits
from sfnode.network.address_book import AddressBook
from sfnode.network.addresses import Address, author_of_peer, parse_address, parse_untrusted, reachable_addresses
from sfnode.network.events import DialReport, NetworkConfig
from sfnode.network.greeting import RefusedError
from sfnode.network.host import DialError, Host
from sfnode.network.link import Link, LinkBrokenError
from sfnode.network.registry import Registry
from sfnode.network.session import Session

_log = logging.getLogger("sfnode.network")

# Runs a whole outbound session; calls the second argument once both have said hello. Raises what greeting raises.
OutboundSession = Callable[[Link, Callable[[], None]], Awaitable[None]]


class Overlay:
    """Keeps this node connected. ``run_session`` is given each dialled link and closes it."""

    def __init__(
        self, *, config: NetworkConfig, host: Host, book: AddressBook, registry: Registry, run_session: OutboundSession
    ) -> None:
        self._config = config
        self._host = host
        self._book = book
        self._registry = registry
        self._run_session = run_session
        self._chance = random.Random()
        self._wake = trio.Event()
        self._dialling: set[PeerId] = set()
        self._reports: dict[str, DialReport] = {}
        self._asked_s: dict[PeerId, float] = {}  # neighbours that we asked for peers, and when
        self._answered_s: dict[PeerId, float] = {}
        self._is_waiting_for_answer: set[PeerId] = set()
        self._next_bootstrap_check_s = 0.0

    @property
    def reports(self) -> tuple[DialReport, ...]:
        """The last failure of each address that does not work now."""
        return tuple(self._reports.values())

    def wake(self) -> None:
        """Something changed: look at once whether neighbours are missing."""
        self._wake.set()

    async def run(self) -> None:
        """Never returns."""
        self._next_bootstrap_check_s = trio.current_time() + limits.BOOTSTRAP_CHECK_S
        async with trio.open_nursery() as nursery:
            while True:
                for peer in self._choose():
                    self._dialling.add(peer)
                    nursery.start_soon(self._dial_and_run, peer)
                self._ask_for_peers()
                with trio.move_on_after(limits.UPKEEP_INTERVAL_S):
                    await self._wake.wait()
                self._wake = trio.Event()

    # --- dialling

    def _choose(self) -> tuple[PeerId, ...]:
        """Whom to dial now."""
        now_s = trio.current_time()
        exclude = self._registry.peers() | self._registry.discouraged() | frozenset(self._dialling)
        free = limits.DIALS_AT_ONCE_MAX - len(self._dialling)
        if self._config.neighbours_fixed:
            return self._book.due(now_s, exclude=exclude, bootstrap_only=True)[: max(0, free)]
        ours = self._registry.count(is_outbound=True) + len(self._dialling)
        wanted = min(free, self._config.outbound_target - ours)
        if wanted > 0:
            return self._book.due(now_s, exclude=exclude)[:wanted]
        return self._bootstrap_to_check(now_s, exclude) if ours < self._config.outbound_max else ()

    def _bootstrap_to_check(self, now_s: float, exclude: frozenset[PeerId]) -> tuple[PeerId, ...]:
        """Now and then one more dial to a bootstrap: two halves of a split network know only that they have it in common."""
        if now_s < self._next_bootstrap_check_s:
            return ()
        self._next_bootstrap_check_s = now_s + limits.BOOTSTRAP_CHECK_S * self._chance.uniform(0.5, 1.5)
        return self._book.due(now_s, exclude=exclude, bootstrap_only=True)[:1]

    async def _dial_and_run(self, peer: PeerId) -> None:
        """Try the addresses one by one; the first that works carries a session, which runs in here until it ends."""
        try:
            for transport in self._book.addresses(peer):
                address = replace(parse_address(transport), peer=peer)
                if await self._try_address(address):
                    break
        finally:
            self._dialling.discard(peer)
            self.wake()

    async def _try_address(self, address: Address) -> bool:
        """True when the peer was reached, whatever came of it."""
        assert address.peer is not None
        peer = address.peer

        def on_greeted() -> None:
            self._dialling.discard(peer)
            self._reports.pop(str(address), None)
            self._book.succeeded(peer, address.transport, unix_ms=int(time.time() * 1000))

        try:
            link = await self._host.dial(address)
        except DialError as error:
            self._failed(address, str(error))
            return False
        try:
            await self._run_session(link, on_greeted)
        except RefusedError as error:
            self._learn(error.peers, source=peer, observed_host=link.remote_host)
            self._failed(address, error.reason, limits.WRONG_RUN_S if error.is_lasting else limits.REFUSED_S)
        except LinkBrokenError as error:
            self._failed(address, str(error))
        except Reject as error:
            self._registry.discourage(peer, limits.GARBAGE_S)
            self._failed(address, f"it sent what no honest node sends ({error})", limits.GARBAGE_S)
        else:
            self._book.failed(peer, trio.current_time())  # ended after running: a moment's pause before the next dial
        return True

    def _failed(self, address: Address, reason: str, at_least_s: float = 0.0) -> None:
        assert address.peer is not None
        retry_in_s = self._book.failed(address.peer, trio.current_time(), at_least_s=at_least_s)
        earlier = self._reports.pop(str(address), None)
        failures = earlier.failures + 1 if earlier else 1
        report = DialReport(address=str(address), reason=reason, failures=failures, retry_in_s=retry_in_s)
        self._reports[str(address)] = report
        if len(self._reports) > limits.DIAL_REPORTS_MAX:
            del self._reports[next(iter(self._reports))]
        _log.info("dial_failed address=%s reason=%r failures=%d retry_in_s=%.1f", address, reason, failures, retry_in_s)

    # --- exchanging peers

    def greeted(self, session: Session) -> None:
        """A session began: remember where the neighbour listens, ask it for others."""
        self._learn_from_hello(session)
        self.wake()

    def ended(self, session: Session) -> None:
        """A session ended."""
        for table in (self._asked_s, self._answered_s):
            table.pop(session.peer, None)
        self._is_waiting_for_answer.discard(session.peer)
        self.wake()

    def _learn_from_hello(self, session: Session) -> None:
        if not self._config.neighbours_fixed:
            said = PeerAddress(peer=session.peer, addresses=session.hello.listen)
            self._learn((said,), source=session.peer, observed_host=session.channel.link.remote_host)

    def _ask_for_peers(self) -> None:
        """Ask each new neighbour once, then now and then; often while nobody is left to dial."""
        if self._config.neighbours_fixed:
            return
        now_s = trio.current_time()
        is_hungry = self._registry.count(is_outbound=True) < self._config.outbound_target
        interval_s = limits.EXCHANGE_HUNGRY_S if is_hungry else limits.EXCHANGE_INTERVAL_S
        for session in self._registry.all():
            asked_s = self._asked_s.get(session.peer)
            if (asked_s is None or now_s - asked_s >= interval_s) and session.send(PeersRequest()):
                self._asked_s[session.peer] = now_s
                self._is_waiting_for_answer.add(session.peer)

    def answer(self, session: Session) -> None:
        """A neighbour asks for peers. Asked too often: no answer."""
        now_s = trio.current_time()
        answered_s = self._answered_s.get(session.peer)
        if answered_s is None or now_s - answered_s >= limits.PEERS_ANSWER_INTERVAL_S * 0.9:
            self._answered_s[session.peer] = now_s
            session.send(Peers(peers=self.recommend(session.peer, session.channel.link.remote_host)))

    def recommend(self, peer: PeerId, observed_host: str) -> tuple[PeerAddress, ...]:
        """What to tell this peer of others."""
        if self._config.neighbours_fixed:
            return ()
        found: list[PeerAddress] = []
        for known in self._book.share(exclude=peer, connected=self._registry.peers()):
            addresses = parse_untrusted(self._book.addresses(known))
            reachable = reachable_addresses(addresses, observed_host=observed_host)
            if reachable:
                found.append(PeerAddress(peer=known, addresses=reachable))
        return tuple(found)

    def receive(self, session: Session, message: Peers) -> bool:
        """A neighbour tells of peers; False when it was not asked."""
        if session.peer not in self._is_waiting_for_answer:
            return False
        self._is_waiting_for_answer.discard(session.peer)
        if not self._config.neighbours_fixed:
            self._learn(message.peers, source=session.peer, observed_host=session.channel.link.remote_host)
            self.wake()
        return True

    def _learn(self, peers: tuple[PeerAddress, ...], *, source: PeerId, observed_host: str) -> None:
        for told in peers:
            try:
                author_of_peer(told.peer)
            except ValueError:
                continue
            addresses = parse_untrusted(told.addresses)
            if told.peer != source:
                addresses = tuple(address for address in addresses if not address.is_wildcard)
            reachable = reachable_addresses(addresses, observed_host=observed_host)
            self._book.learn(PeerId(told.peer), reachable, source=source)
