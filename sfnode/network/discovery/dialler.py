"""Upkeep of the outbound neighbours: whom to dial, dials, their sessions, reports of failed dials for the operator.

`policy.outbound_choice` has the pure part of the choice. docs/architecture.md follows a peer through all four files.
"""

import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import trio

from protocol.errors import Reject
from protocol.wire import PeerId
from sfnode.event_log import log
from sfnode.network import bounds
from sfnode.network.discovery.peer_exchange import PeerExchange
from sfnode.network.policy import Address, Group, ip_groups, outbound_choice
from sfnode.network.reports import DialReport
from sfnode.network.sessions import RefusedError, handshake
from sfnode.network.transport import DialError, Host, Link, LinkBrokenError
from sfnode.unexpected_errors import Slips


class DialChoice:
    """Chooses whom to dial, so that enough outbound neighbours lie in several networks and a bootstrap is among them.

    Attributes:
        dialling: the peers that are being dialled, with the network of the address that is tried first.
        recommended: the peers that a full bootstrap has named.
        next_bootstrap_check_s: when a bootstrap is dialled although there are neighbours enough.
    """

    def __init__(self, exchange: PeerExchange) -> None:
        self._config, self._book, self._sessions = exchange.config, exchange.book, exchange.open_sessions
        self._chance = random.Random()
        self.dialling: dict[PeerId, Group | None] = {}
        self.recommended: frozenset[PeerId] = frozenset()
        self.next_bootstrap_check_s = 0.0
        self._book.in_use = lambda: self._sessions.served() | frozenset(self.dialling)

    def begin(self, peer: PeerId) -> None:
        """Note that a peer is being dialled from now on."""
        addresses = self._book.dialable(peer, trio.current_time())
        self.dialling[peer] = ip_groups.public_group_of(addresses[0].host) if addresses else None

    def choose(self) -> tuple[PeerId, ...]:
        now_s = trio.current_time()
        exclude = self._sessions.served() | self._sessions.discouraged() | frozenset(self.dialling)
        free = bounds.DIALS_AT_ONCE_MAX - len(self.dialling)
        if self._config.neighbours_fixed:
            return self._book.due(now_s, exclude=exclude, bootstrap_only=True)[: max(0, free)]
        wanted = min(free, self._config.outbound_target - self._sessions.count(is_outbound=True) - len(self.dialling))
        if wanted > 0:
            # Too few outbound sessions: dial the missing ones, spread over networks.
            return outbound_choice.spread(self._candidates(now_s, exclude), self._taken(), wanted)
        # Enough: one extra dial at most, to a bootstrap or else to a less crowded network.
        dialled = self._dialled()
        leaving = outbound_choice.choose_to_leave(dialled) if len(dialled) > self._config.outbound_target else None
        session = self._sessions.get(leaving) if leaving is not None else None
        if session is not None:
            session.say_bye("making room for another network")
        checked = self._to_check(now_s, exclude) if free > 0 else ()
        if free <= 0 or checked:
            return checked
        taken = self._taken()
        if not outbound_choice.is_crowded(taken):
            return ()
        found = outbound_choice.elsewhere(self._candidates(now_s, exclude), taken)
        return (found,) if found is not None and len(taken) < self._config.outbound_max else ()

    def _candidates(self, now_s: float, exclude: frozenset[PeerId]) -> Iterator[tuple[PeerId, Group | None]]:
        """Yield the peers that may be dialled now, each with the network of the address that is tried first."""
        for peer in self._book.due(now_s, exclude=exclude):
            yield peer, ip_groups.public_group_of(self._book.dialable(peer, now_s)[0].host)

    def _dialled(self) -> tuple[outbound_choice.Dialled, ...]:
        """Return the outbound sessions that are not ending, the oldest first."""
        sessions = [each for each in self._sessions.outbound() if not each.is_ending]
        return tuple(
            outbound_choice.Dialled(
                peer=session.peer,
                group=ip_groups.public_group_of(session.channel.link.remote_host),
                started_s=session.started_s,
                is_kept=place < bounds.ANCHORS or self._book.is_bootstrap(session.peer),
            )
            for place, session in enumerate(sessions)
        )

    def _taken(self) -> list[Group | None]:
        """Return the networks of the outbound neighbours and of the peers that are being dialled."""
        return [each.group for each in self._dialled()] + [group for _, group in sorted(self.dialling.items())]

    def _to_check(self, now_s: float, exclude: frozenset[PeerId]) -> tuple[PeerId, ...]:
        """Return a bootstrap to dial if the interval is over: only bootstraps connect the halves of a split network.

        A full bootstrap recommends neighbours of its own; one of them serves the same purpose.
        """
        found = tuple(peer for peer in self._book.due(now_s, exclude=exclude) if peer in self.recommended)[:1]
        self.recommended = frozenset()
        if not found and now_s >= self.next_bootstrap_check_s:
            self.next_bootstrap_check_s = now_s + bounds.BOOTSTRAP_CHECK_S * self._chance.uniform(0.5, 1.5)
            found = self._book.due(now_s, exclude=exclude, bootstrap_only=True)[:1]
        return found if found and self._has_room_to_check() else ()

    def _has_room_to_check(self) -> bool:
        """Return whether one more session is allowed; if all are taken, end the youngest that is not to a bootstrap."""
        dialled = self._sessions.outbound()
        if len(dialled) + len(self.dialling) < self._config.outbound_max:
            return True
        others = [each for each in dialled[bounds.ANCHORS :] if not self._book.is_bootstrap(each.peer)]
        if others:
            others[-1].say_bye("making room for a bootstrap")
        return bool(others)


# Runs a whole outbound session; calls the second argument after both hellos. Raises the errors of the handshake.
OutboundSession = Callable[[Link, Callable[[], None]], Awaitable[None]]


class Dialler:
    """Keeps enough outbound sessions open. ``run_session`` gets each dialled link and closes it.

    Attributes:
        is_stopping: no new neighbours are dialled.
    """

    def __init__(self, host: Host, exchange: PeerExchange, run_session: OutboundSession, slips: Slips) -> None:
        self._host = host
        self._exchange = exchange
        self._book = exchange.book
        self._run_session = run_session
        self._slips = slips
        self._choice = DialChoice(exchange)
        self._reports: dict[str, DialReport] = {}
        self.is_stopping = False

    @property
    def reports(self) -> tuple[DialReport, ...]:
        """Return the last failure of each address that does not work now, for the operator."""
        return tuple(self._reports.values())

    async def run(self) -> None:
        """Dial missing neighbours until cancelled; the outbound sessions run in here."""
        self._choice.next_bootstrap_check_s = trio.current_time() + bounds.BOOTSTRAP_CHECK_S
        async with trio.open_nursery() as nursery:
            while True:
                with self._slips.contained("upkeep"):  # ends one turn only; the sessions in this nursery go on
                    self._keep_up(nursery)
                with trio.move_on_after(bounds.UPKEEP_INTERVAL_S):
                    await self._exchange.changed.wait()
                self._exchange.changed = trio.Event()

    def _keep_up(self, nursery: trio.Nursery) -> None:
        for peer in () if self.is_stopping else self._choice.choose():
            self._choice.begin(peer)
            nursery.start_soon(self._dial_and_run, peer)
        self._exchange.ask()

    async def _dial_and_run(self, peer: PeerId) -> None:
        """Try the peer's addresses one by one; run the session on the first that works until it ends."""
        is_slip, met = True, trio.Event()
        try:
            with self._slips.contained("an outbound session", endings=()):
                await self._try_addresses(peer, met)
                is_slip = False
        finally:
            if not met.is_set():  # else it may be dialled again by now
                self._choice.dialling.pop(peer, None)
            self._exchange.changed.set()
        if is_slip:  # perhaps this peer can trigger the bug: do not dial it again at once
            self._book.failed(peer, trio.current_time(), at_least_s=bounds.REFUSED_S)

    async def _try_addresses(self, peer: PeerId, met: trio.Event) -> None:
        failed: dict[Address, str] = {}
        link = None
        addresses = self._book.dialable(peer, trio.current_time())
        for bare in addresses:
            address = replace(bare, peer=peer)
            self._book.tried_at(peer, bare, trio.current_time())
            try:
                link = await self._host.dial(address, has_others=bare != addresses[-1])
                self._book.answered(bare)
                break
            except DialError as error:
                failed[address] = str(error)
                if error.is_other_peer:
                    self._book.belongs_to_another(peer, address, trio.current_time())
        if failed:
            self._failed(peer, failed)
        if link is not None:
            await self._converse(peer, address, link, met)

    async def _converse(self, peer: PeerId, address: Address, link: Link, met: trio.Event) -> None:
        def on_handshake() -> None:
            met.set()
            self._choice.dialling.pop(peer, None)
            self._reports.pop(str(address), None)
            self._book.succeeded(peer, address, unix_ms=int(time.time() * 1000))

        try:
            await self._run_session(link, on_handshake)
        except RefusedError as error:
            self._refused(peer, address, error, link.remote_host)
        except LinkBrokenError as error:
            self._failed(peer, {address: str(error)})
        except Reject as error:
            self._exchange.open_sessions.drop(peer, str(error))
            self._failed(peer, {address: f"it sent what no honest node sends ({error})"})

    def _refused(self, peer: PeerId, address: Address, error: RefusedError, remote_host: str) -> None:
        self._exchange.learn(error.peers, source=peer, observed_host=remote_host)
        if self._book.is_bootstrap(peer):
            self._choice.recommended = frozenset(PeerId(named.peer) for named in error.peers)
        is_double = error.reason.startswith(handshake.DUPLICATE)  # both ends dialled at once
        if not (is_double and peer in self._exchange.open_sessions.served()):
            at_least_s = bounds.WRONG_RUN_S if error.is_lasting else bounds.REFUSED_S
            self._failed(peer, {address: error.reason}, at_least_s)

    def _failed(self, peer: PeerId, reasons: dict[Address, str], at_least_s: float = 0.0) -> None:
        """Note one failed try of a peer, with the reason of each address."""
        retry_in_s = self._book.failed(peer, trio.current_time(), at_least_s=at_least_s)
        for address, reason in reasons.items():
            where = str(address)
            earlier = self._reports.pop(where, None)
            self._reports[where] = DialReport(
                address=where,
                reason=reason,
                failures=earlier.failures + 1 if earlier else 1,
                retry_in_s=retry_in_s,
                is_expected=self._book.is_expected(peer),
            )
            log(logging.DEBUG, "dial_not_answered", address=where, reason=reason, retry_in_s=round(retry_in_s, 1))
        by_worth = sorted(self._reports, key=lambda where: self._reports[where].is_expected)  # each kind: oldest first
        for oldest in by_worth[: -bounds.DIAL_REPORTS_MAX]:
            del self._reports[oldest]
