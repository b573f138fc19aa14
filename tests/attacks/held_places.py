"""Places for the manifest, held by connections that ask for nothing."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Final

import trio

from protocol.errors import Reject
from protocol.wire import Ping
from sfnode.network.network_config import Timings
from sfnode.network.sessions.bandwidth_limit import Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.handshake import OBSERVER_RUN_ID, RefusedError, exchange_hello, own_hello
from sfnode.network.transport.host import DialError, Host
from sfnode.network.transport.link import Link, LinkBrokenError
from tests.attacks.doors import ATTACKER, Spent, in_words, link_from, manifest_s
from tests.attacks.outcome import Outcome
from tests.attacks.relay import Relay, running_relay

_HOLDERS: Final = 8  # as many as there are places
_PING_S: Final = 4.0
_AGAIN_S: Final = 1.0
_JOINED_S_MAX: Final = 3.0


def held_places(is_short: bool) -> Outcome:
    """One address holds every place where newcomers fetch the manifest, with a ping now and then."""
    with running_relay() as victim:
        return trio.run(_attack, victim, 10.0 if is_short else 60.0)


async def _attack(victim: Relay, lasts_s: float) -> Outcome:
    before_s = await manifest_s(victim)
    spent = Spent()
    async with trio.open_nursery() as nursery:
        for _ in range(_HOLDERS):
            nursery.start_soon(_hold_for_ever, victim.address, spent)
        started_s = trio.current_time()
        await trio.sleep(2.0)  # all hold a place, or never will
        during = [await manifest_s(victim)]
        while (rest_s := started_s + lasts_s - trio.current_time()) > 0:
            await trio.sleep(min(rest_s, 2.0))
            during.append(await manifest_s(victim))
        minutes = (trio.current_time() - started_s) / 60
        nursery.cancel_scope.cancel()
    after_s = await manifest_s(victim)
    worst_s = None if None in during else max(each for each in during if each is not None)
    return Outcome(
        before=in_words(before_s),
        during=in_words(worst_s),
        after=in_words(after_s),
        attacker=f"{spent.bytes / minutes / 1_000:.1f} kB/min",
        bound=f"a joiner has the manifest in {_JOINED_S_MAX:.0f} s",
        is_held=worst_s is not None and worst_s <= _JOINED_S_MAX and victim.is_alive,
    )


async def _hold_for_ever(address: str, spent: Spent) -> None:
    """One place, taken anew whenever it is lost."""
    attacker = Host(identity_seed=secrets.token_bytes(32), on_inbound=Link.aclose)
    async with attacker.running(()):
        while True:
            with suppress(DialError, LinkBrokenError, RefusedError, Reject, OSError):
                await _hold(await link_from(attacker, ATTACKER, address, spent))
            await trio.sleep(_AGAIN_S)


async def _hold(link: Link) -> None:
    try:
        channel = Channel(link, Timings(), Traffic())
        hello = own_hello(run_id=OBSERVER_RUN_ID, agent="idle", listen=(), head_step=0)
        await exchange_hello(channel, hello)
        while True:
            await trio.sleep(_PING_S)
            await channel.send_now(Ping(nonce=1))
            await channel.receive_untrusted()
    finally:
        await link.aclose()
