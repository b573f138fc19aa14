"""Upkeep of the outbound neighbours: dials, their sessions, and reports of failed dials for the operator."""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import trio

from protocol.errors import Reject
from protocol.wire import PeerId
from sfnode.event_log import log
from sfnode.network import bounds
from sfnode.network.discovery.dial_choice import DialChoice
from sfnode.network.discovery.peer_exchange import PeerExchange
from sfnode.network.policy import Address
from sfnode.network.reports import DialReport
from sfnode.network.sessions import RefusedError, handshake
from sfnode.network.transport import DialError, Host, Link, LinkBrokenError
from sfnode.unexpected_errors import Slips

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
        is_slip = True
        try:
            with self._slips.contained("an outbound session", endings=()):
                await self._try_addresses(peer)
                is_slip = False
        finally:
            self._choice.dialling.pop(peer, None)
            self._exchange.changed.set()
        if is_slip:  # perhaps this peer can trigger the bug: do not dial it again at once
            self._book.failed(peer, trio.current_time(), at_least_s=bounds.REFUSED_S)

    async def _try_addresses(self, peer: PeerId) -> None:
        for address in self._book.dialable(peer, trio.current_time()):
            if await self._try_address(replace(address, peer=peer)):
                break

    async def _try_address(self, address: Address) -> bool:
        """Dial one address and run the session; return whether the peer was reached."""
        assert address.peer is not None
        peer = address.peer

        def on_handshake() -> None:
            self._choice.dialling.pop(peer, None)
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
            self._exchange.open_sessions.drop(peer, str(error))
            self._failed(address, f"it sent what no honest node sends ({error})")
        return True

    def _refused(self, address: Address, error: RefusedError, remote_host: str) -> None:
        assert address.peer is not None
        self._exchange.learn(error.peers, source=address.peer, observed_host=remote_host)
        if self._book.is_bootstrap(address.peer):
            self._choice.recommended = frozenset(PeerId(named.peer) for named in error.peers)
        if not error.reason.startswith(handshake.DUPLICATE):  # both ends dialled at once, and the other session stays
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
