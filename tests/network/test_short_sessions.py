"""A peer that takes each session and drops it at once: it is dialled less and less often."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio

from sfnode.network import bounds
from sfnode.network.network_config import NetworkConfig
from sfnode.network.sessions.bandwidth_limit import Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.handshake import RefusedError, await_hello
from sfnode.network.transport.link import Link, LinkBrokenError
from tests.network.test_parts import address, book, peer
from tests.support.network_nodes import CALM, HELLO, address_of, network, running_host, start, until


async def test_peer__says_hello_and_leaves_each_time__is_dialled_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was dialled once a second for ever: each hello counted as a success, after which nothing had failed."""
    monkeypatch.setattr(bounds, "BACKOFF_START_S", 0.02)
    monkeypatch.setattr(bounds, "UPKEEP_INTERVAL_S", 0.01)
    for limit in ("STREAMS_BURST", "HANDSHAKES_BURST"):  # the leaver sets no limits
        monkeypatch.setattr(bounds, limit, 1_000)
    dials = 0

    async def leave(link: Link) -> None:
        nonlocal dials
        dials += 1
        channel = Channel(link, CALM, Traffic())
        with suppress(LinkBrokenError, RefusedError):
            await await_hello(channel)
            await channel.send_now(HELLO)
        await link.aclose()

    async with running_host(1, leave) as leaver, trio.open_nursery() as nursery:
        await start(nursery, network(2, NetworkConfig(bootstrap=(address_of(leaver),))))
        await until(lambda: dials > 2)
        await trio.sleep(2.0)
        nursery.cancel_scope.cancel()
    assert dials < 20  # after 0.02, 0.02, 0.04, 0.08 ... s at most


def test_address_book__sessions_that_end_at_once__delay_the_next_dial_until_one_lasts() -> None:
    known, now_s = book(f"{address(3)}/p2p/{peer(3)}"), 0.0

    def rest_s(lasted_s: float) -> float:
        """How long the peer rests after one more session."""
        nonlocal now_s
        known.pause(peer(3), now_s, lasted_s=lasted_s)
        ended_s = now_s
        while not known.due(now_s, exclude=frozenset()):
            now_s += 0.25
        return now_s - ended_s

    rests_s = [rest_s(0.1) for _ in range(40)]
    assert rests_s[0] <= bounds.BACKOFF_START_S < 20 < max(rests_s) <= bounds.BACKOFF_BOOTSTRAP_MAX_S
    assert rest_s(bounds.SHORT_SESSION_S) <= bounds.BACKOFF_START_S
    assert rest_s(0.1) <= bounds.BACKOFF_START_S


async def test_peer__dialled_again_while_its_last_connection_closes__is_not_dialled_twice_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of the last session forgot that the peer was being dialled again, and a third connection was made."""
    monkeypatch.setattr(bounds, "BACKOFF_START_S", 0.02)
    monkeypatch.setattr(bounds, "UPKEEP_INTERVAL_S", 0.01)
    close, here, most = Link.aclose, 0, 0

    async def close_slowly(link: Link) -> None:
        await trio.sleep(0.3 if link.is_outbound else 0.0)
        await close(link)

    async def answer_slowly(link: Link) -> None:
        nonlocal here, most
        here, most = here + 1, max(most, here + 1)
        channel = Channel(link, CALM, Traffic())
        with suppress(LinkBrokenError, RefusedError):
            await await_hello(channel)
            await trio.sleep(0.6)
            here -= 1  # before the hello, after which it may be dialled again
            await channel.send_now(HELLO)
        await link.aclose()

    monkeypatch.setattr(Link, "aclose", close_slowly)
    async with running_host(1, answer_slowly) as slow, trio.open_nursery() as nursery:
        await start(nursery, network(2, NetworkConfig(bootstrap=(address_of(slow),))))
        await until(lambda: most > 0)
        await trio.sleep(3.0)
        nursery.cancel_scope.cancel()
    assert most == 1
