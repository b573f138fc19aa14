"""Upkeep of the outbound neighbours: whom to dial and when, and reports of failed dials for the operator."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import lru_cache

import trio

from protocol.errors import Reject
from protocol.wire import PeerId
from sfnode.event_log import log
from sfnode.network import bounds
from sfnode.network.discovery.peer_exchange import PeerExchange
from sfnode.network.policy import (
    Address,
    AddressBook,
    Candidate,
    Dialled,
    Fault,
    Group,
    choose_to_leave,
    elsewhere,
    is_crowded,
    public_group_of,
    spread,
)
from sfnode.network.reports import DialReport
from sfnode.network.sessions import DUPLICATE, OpenSessions, RefusedError
from sfnode.network.transport import DialError, Host, Link, LinkBrokenError
from sfnode.slips import Slips

# Runs a whole outbound session; calls the second argument after both hellos. Raises the errors of the handshake.
OutboundSession = Callable[[Link, Callable[[], None]], Awaitable[None]]


class Dialler:
    """Keeps enough outbound sessions open. ``run_session`` gets each dialled link and closes it."""

    def __init__(
        self,
        *,
        host: Host,
        book: AddressBook,
        open_sessions: OpenSessions,
        exchange: PeerExchange,
        run_session: OutboundSession,
        slips: Slips,
    ) -> None:
        self._config = exchange.config
        self._host = host
        self._book = book
        self._open_sessions = open_sessions
        self._exchange = exchange
        self._run_session = run_session
        self._slips = slips
        self._chance = random.Random()
        self._wake = trio.Event()
        self._dialling: dict[PeerId, Group | None] = {}  # peer -> network of the address that is tried first
        self._reports: dict[str, DialReport] = {}
        self._next_bootstrap_check_s = 0.0
        self._recommended: frozenset[PeerId] = frozenset()  # named by a bootstrap that was full
        self._is_stopping = False
        book.in_use = lambda: open_sessions.served() | self.dialling

    @property
    def reports(self) -> tuple[DialReport, ...]:
        """Return the last failure of each address that does not work now, for the operator."""
        return tuple(self._reports.values())

    @property
    def dialling(self) -> frozenset[PeerId]:
        """Return the peers that are being dialled."""
        return frozenset(self._dialling)

    def wake(self) -> None:
        """Look for missing neighbours at once, because something has changed."""
        self._wake.set()

    def stop_dialling(self) -> None:
        """Dial no new neighbours from now on."""
        self._is_stopping = True

    async def run(self) -> None:
        """Dial missing neighbours until cancelled; the outbound sessions run in here."""
        self._next_bootstrap_check_s = trio.current_time() + bounds.BOOTSTRAP_CHECK_S
        async with trio.open_nursery() as nursery:
            while True:
                with self._slips.contained("upkeep"):  # ends one turn only; the sessions in this nursery go on
                    self._keep_up(nursery)
                with trio.move_on_after(bounds.UPKEEP_INTERVAL_S):
                    await self._wake.wait()
                self._wake = trio.Event()

    def _keep_up(self, nursery: trio.Nursery) -> None:
        for peer in self._choose():
            addresses = self._book.dialable(peer, trio.current_time())
            self._dialling[peer] = _group_of(addresses[0].host) if addresses else None
            nursery.start_soon(self._dial_and_run, peer)
        self._exchange.ask()

    # --- dialling

    def _choose(self) -> tuple[PeerId, ...]:
        """Return the peers to dial now."""
        if self._is_stopping:
            return ()
        now_s = trio.current_time()
        exclude = self._open_sessions.served() | self._open_sessions.discouraged() | frozenset(self._dialling)
        free = bounds.DIALS_AT_ONCE_MAX - len(self._dialling)
        if self._config.neighbours_fixed:
            return self._book.due(now_s, exclude=exclude, bootstrap_only=True)[: max(0, free)]
        ours = self._open_sessions.count(is_outbound=True) + len(self._dialling)
        wanted = min(free, self._config.outbound_target - ours)
        if wanted > 0:
            # Too few outbound sessions: dial the missing ones, spread over networks.
            return spread(self._candidates(now_s, exclude), self._taken(), wanted)
        # Enough: one extra dial at most, to a bootstrap or else to a less crowded network.
        self._leave_if_crowded()
        checked = self._to_check(now_s, exclude) if free > 0 else ()
        if free <= 0 or checked:
            return checked
        taken = self._taken()
        found = elsewhere(self._candidates(now_s, exclude), taken) if is_crowded(taken) else None
        return (found,) if found is not None and len(taken) < self._config.outbound_max else ()

    def _candidates(self, now_s: float, exclude: frozenset[PeerId]) -> Iterator[Candidate]:
        """Yield the peers that may be dialled now, each with the network of the address that is tried first."""
        for peer in self._book.due(now_s, exclude=exclude):
            yield Candidate(peer=peer, group=_group_of(self._book.dialable(peer, now_s)[0].host))

    def _dialled(self) -> tuple[Dialled, ...]:
        """Return the outbound sessions that are not ending, the oldest first."""
        sessions = [each for each in self._open_sessions.all() if each.is_outbound and not each.is_ending]
        sessions.sort(key=lambda session: session.started_s)
        return tuple(
            Dialled(
                peer=session.peer,
                group=public_group_of(session.channel.link.remote_host),
                started_s=session.started_s,
                is_kept=place < bounds.ANCHORS or self._book.is_bootstrap(session.peer),
            )
            for place, session in enumerate(sessions)
        )

    def _taken(self) -> list[Group | None]:
        """Return the networks of the outbound neighbours and of the peers that are being dialled."""
        return [each.group for each in self._dialled()] + [group for _, group in sorted(self._dialling.items())]

    def _leave_if_crowded(self) -> None:
        """End one session if we have more outbound neighbours than wanted and too many are of one network."""
        dialled = self._dialled()
        leaving = choose_to_leave(dialled) if len(dialled) > self._config.outbound_target else None
        session = self._open_sessions.get(leaving) if leaving is not None else None
        if session is not None:
            session.say_bye("making room for another network")

    def _to_check(self, now_s: float, exclude: frozenset[PeerId]) -> tuple[PeerId, ...]:
        """Return a bootstrap to dial if the interval is over: only bootstraps connect the halves of a split network.

        A full bootstrap recommends neighbours of its own; one of them serves the same purpose.
        """
        found = tuple(peer for peer in self._book.due(now_s, exclude=exclude) if peer in self._recommended)[:1]
        self._recommended = frozenset()
        if not found and now_s >= self._next_bootstrap_check_s:
            self._next_bootstrap_check_s = now_s + bounds.BOOTSTRAP_CHECK_S * self._chance.uniform(0.5, 1.5)
            found = self._book.due(now_s, exclude=exclude, bootstrap_only=True)[:1]
        return found if found and self._has_room_to_check() else ()

    def _has_room_to_check(self) -> bool:
        """Return whether one more session is allowed; if all are taken, end the youngest that is not to a bootstrap."""
        outbound = [session for session in self._open_sessions.all() if session.is_outbound]
        if len(outbound) + len(self._dialling) < self._config.outbound_max:
            return True
        outbound.sort(key=lambda session: session.started_s)
        others = [each for each in outbound[bounds.ANCHORS :] if not self._book.is_bootstrap(each.peer)]
        if others:
            others[-1].say_bye("making room for a bootstrap")
        return bool(others)

    async def _dial_and_run(self, peer: PeerId) -> None:
        """Try the peer's addresses one by one; run the session on the first that works until it ends."""
        is_slip = True
        try:
            with self._slips.contained("an outbound session", endings=()):
                await self._dial(peer)
                is_slip = False
        finally:
            self._dialling.pop(peer, None)
            self.wake()
        if is_slip:  # perhaps this peer can trigger the bug: do not dial it again at once
            self._book.failed(peer, trio.current_time(), at_least_s=bounds.REFUSED_S)

    async def _dial(self, peer: PeerId) -> None:
        for address in self._book.dialable(peer, trio.current_time()):
            if await self._try_address(replace(address, peer=peer)):
                return

    async def _try_address(self, address: Address) -> bool:
        """Dial one address and run the session; return whether the peer was reached."""
        assert address.peer is not None
        peer = address.peer

        def on_handshake() -> None:
            self._dialling.pop(peer, None)
            self._reports.pop(str(address), None)
            self._book.succeeded(peer, address, unix_ms=int(time.time() * 1000))

        self._book.tried_at(address, trio.current_time())
        try:
            link = await self._host.dial(address)
        except DialError as error:
            self._failed(address, str(error))
            return False
        try:
            await self._run_session(link, on_handshake)
        except RefusedError as error:
            self._refused(address, error, link.remote_host)
        except LinkBrokenError as error:
            self._failed(address, str(error))
        except Reject as error:
            self._open_sessions.penalise(peer, Fault.GARBAGE, str(error))
            self._failed(address, f"it sent what no honest node sends ({error})")
        return True

    def _refused(self, address: Address, error: RefusedError, remote_host: str) -> None:
        assert address.peer is not None
        self._exchange.learn(error.peers, source=address.peer, observed_host=remote_host)
        if self._book.is_bootstrap(address.peer):
            self._recommended = frozenset(PeerId(named.peer) for named in error.peers)
        if not error.reason.startswith(DUPLICATE):  # both ends dialled at once, and the other session stays
            self._failed(address, error.reason, bounds.WRONG_RUN_S if error.is_lasting else bounds.REFUSED_S)

    def _failed(self, address: Address, reason: str, at_least_s: float = 0.0) -> None:
        assert address.peer is not None
        retry_in_s = self._book.failed(address.peer, trio.current_time(), at_least_s=at_least_s)
        earlier = self._reports.pop(str(address), None)
        failures = earlier.failures + 1 if earlier else 1
        report = DialReport(address=str(address), reason=reason, failures=failures, retry_in_s=retry_in_s)
        self._reports[str(address)] = report
        if len(self._reports) > bounds.DIAL_REPORTS_MAX:
            del self._reports[next(iter(self._reports))]
        log(logging.DEBUG, "dial_not_answered", address=str(address), reason=reason, retry_in_s=round(retry_in_s, 1))


@lru_cache(maxsize=bounds.KNOWN_PEERS_MAX)  # 20 us each, and each second scans a full book
def _group_of(host: str) -> Group | None:
    return public_group_of(host)
