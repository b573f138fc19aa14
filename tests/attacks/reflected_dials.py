"""A node that is made to knock at a stranger's machine: liars name one address, each time under other ids."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import trio

from protocol.crypto import Signer
from protocol.wire import Message, PeerAddress, Peers, PeersRequest, Ping, Pong
from sfnode.network.policy.addresses import peer_of_author
from sfnode.network.transport.link import LinkBrokenError
from tests.attacks.outcome import Outcome
from tests.attacks.relay import Relay, running_relay
from tests.attacks.visitor import Visitor, visiting

_LIARS: Final = 8
_IDS: Final = 60  # in each answer
_DIALS_PER_MINUTE_MAX: Final = 8
_BEGINNING_DIALS_MAX: Final = 6  # those in a row before the address rests for long


@dataclass
class Stranger:
    """Somebody's machine, which has nothing to do with the run: how often it was knocked at."""

    knocks: int = 0

    async def open_door(self, stream: trio.SocketStream) -> None:
        """Count, and hang up."""
        self.knocks += 1
        await trio.aclose_forcefully(stream)


def reflected_dials(is_short: bool) -> Outcome:
    """Eight neighbours name one address of a stranger under ever new ids; how often is it dialled?"""
    with running_relay() as liar_to:
        return trio.run(_attack, liar_to, 15.0 if is_short else 60.0)


async def _attack(relay: Relay, lasts_s: float) -> Outcome:
    stranger, liars = Stranger(), list[Visitor]()
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.9")
        nursery.start_soon(trio.serve_listeners, stranger.open_door, [listener])
        address = f"/ip4/127.0.0.9/tcp/{listener.socket.getsockname()[1]}"
        for _ in range(_LIARS):
            nursery.start_soon(_lie, relay, address, liars)
        started_s, before_s = trio.current_time(), relay.cpu_s()
        await trio.sleep(lasts_s)
        minutes, spent_s = (trio.current_time() - started_s) / 60, relay.cpu_s() - before_s
        nursery.cancel_scope.cancel()
    most = _BEGINNING_DIALS_MAX + _DIALS_PER_MINUTE_MAX * minutes
    said_kb, core = sum(each.sent_bytes for each in liars) / 1e3, 100 * spent_s / lasts_s
    return Outcome(
        before="0 dials",
        during=f"{stranger.knocks} dials of one address in {60 * minutes:.0f} s, {core:.1f} % of a core",
        after="alive" if relay.is_alive else "the node has ended",
        attacker=f"{len(liars)} sessions, {said_kb:.0f} kB",
        bound=f"{most:.0f} dials",
        is_held=relay.is_alive and len(liars) >= _LIARS and 0 < stranger.knocks <= most,
    )


async def _lie(relay: Relay, address: str, liars: list[Visitor]) -> None:
    """Answer each question for peers with new names for one address; come again if the node hangs up."""
    while True:
        with suppress(LinkBrokenError):
            async with visiting(relay.address, relay.manifest.run_id) as visitor:
                liars.append(visitor)
                await _answer(visitor, address)
        await trio.sleep(1.0)


async def _answer(visitor: Visitor, address: str) -> None:
    while True:
        message = await visitor.hear(Message)
        if isinstance(message, PeersRequest):
            await visitor.say(_made_up(address))
        elif isinstance(message, Ping):
            await visitor.say(Pong(nonce=message.nonce))


def _made_up(address: str) -> Peers:
    """Sixty peers that nobody has heard of, all at one address."""
    keys = (Signer(secrets.token_bytes(32)).author for _ in range(_IDS))
    return Peers(peers=tuple(PeerAddress(peer=peer_of_author(key), addresses=(address,)) for key in keys))
