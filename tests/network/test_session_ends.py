"""The end of a session by a slip or a cancellation: the node hears of it, and nobody waits for it in vain."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from protocol.events import Ticked
from protocol.framing import frame
from protocol.wire import encode
from sfnode.network.discovery.peer_exchange import PeerExchange
from sfnode.network.neighbours import Conversation
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy import Fault
from sfnode.network.sessions.session import Session
from sfnode.network.transport.link import Link
from tests.support.network_nodes import HELLO, dial, network, running_host, start, until


@pytest.mark.parametrize("is_slip", [True, False], ids=["slip", "cancelled"])
async def test_session__ends_by_a_slip_while_the_inbox_is_full__the_node_hears_that_the_peer_has_left(
    is_slip: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event was dropped where there was no room at that moment, and the core kept a neighbour that had gone."""
    run, has_ended, scopes = Session.run, trio.Event(), list[trio.CancelScope]()

    async def broken(session: Session) -> tuple[str, Fault | None]:
        if session.is_outbound:
            return await run(session)
        with trio.CancelScope() as scope:
            scopes.append(scope)
            await run(session)
        has_ended.set()
        raise ValueError("a bug")

    converse = Conversation.inbound

    async def cancelled(conversation: Conversation, link: Link) -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            await converse(conversation, link)
        has_ended.set()

    monkeypatch.setattr(*((Session, "run", broken) if is_slip else (Conversation, "inbound", cancelled)))
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1), is_reading=False)
        await start(nursery, network(2, NetworkConfig(bootstrap=listener.addresses)))
        await until(lambda: listener.network.unread.statistics().current_buffer_used == 1)
        with suppress(trio.WouldBlock):
            while True:
                listener.network._inbox.send_nowait(Ticked(late_ms=0))
        scopes[0].cancel()
        await until(lambda: has_ended.is_set() or listener.network.unread.statistics().tasks_waiting_send)
        await wait_all_tasks_blocked(0.05)
        nursery.start_soon(listener.record)
        await until(listener.disconnected)
        nursery.cancel_scope.cancel()


async def test_stop__session_waits_for_room_in_the_inbox__ends_all_the_same() -> None:
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1), is_reading=False)
        dialler = await start(nursery, network(2, NetworkConfig(bootstrap=listener.addresses)))
        await until(lambda: listener.network.unread.statistics().current_buffer_used == 1)
        with suppress(trio.WouldBlock):
            while True:
                listener.network._inbox.send_nowait(Ticked(late_ms=0))
        await dialler.stop()
        await until(lambda: listener.network.unread.statistics().tasks_waiting_send)
        with trio.fail_after(2.0):
            await listener.stop()
        nursery.cancel_scope.cancel()


async def test_session__its_end_slips_while_another_one_of_the_peer_waits__that_one_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newer session waited for ever, and its peer, who counted as served, was never dialled again."""
    slips, ended = [ValueError("a bug")], PeerExchange.ended

    def slip_once(exchange: PeerExchange, session: Session) -> None:
        ended(exchange, session)
        if slips:
            raise slips.pop()

    monkeypatch.setattr(PeerExchange, "ended", slip_once)
    async with trio.open_nursery() as nursery, running_host(5, is_listening=False) as host:
        listener = await start(nursery, network(1))
        for count in (1, 2):
            link = await dial(host, listener)
            await link.send_all(frame(encode(HELLO)))
            await until(lambda count=count: len(listener.connected()) == count)  # type: ignore[misc]
        assert slips == []
        nursery.cancel_scope.cancel()
