"""The first words of a session. The dialler says hello, the other side answers with its own hello or a polite bye."""

from __future__ import annotations

import re
from typing import Final

import trio

from protocol.errors import Reject, RejectReason
from protocol.limits import ADDRESSES_PER_PEER_MAX
from protocol.wire import VERSION, Bye, Hello, Message, PeerAddress, Peers, encode
from sfnode.network import bounds
from sfnode.network.sessions.channel import Channel
from sfnode.network.transport import LinkBrokenError

OBSERVER_RUN_ID: Final = bytes(32)  # says: I only want manifest and basis
# What a bye may begin with: the dialler keeps away longer when the reason does not change by itself.
OTHER_RUN: Final = "other run"
OTHER_VERSION: Final = "other protocol version"
FULL: Final = "full"
GIVE_WAY: Final = "full, and a newcomer from another network needs the place"
SHORT_OF_MEMORY: Final = "full, and this node is short of memory"
NO_BASIS: Final = "no basis here"
DISCOURAGED: Final = "not now"
DUPLICATE: Final = "there is a newer session between us"
_MISMATCH: Final = re.compile(rf"^({OTHER_RUN}|{OTHER_VERSION}): (\w+) there, (\w+) here")


class RefusedError(Exception):
    """The other side does not want this session. ``peers`` are those it recommends instead."""

    def __init__(self, reason: str, peers: tuple[PeerAddress, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.peers = peers

    @property
    def is_lasting(self) -> bool:
        """True when asking again soon is pointless."""
        return self.reason.startswith((OTHER_RUN, OTHER_VERSION))


class SilentError(RefusedError):
    """It opened a session and did not say hello within HELLO_S."""


def mismatch(own: Hello, theirs: Hello) -> str | None:
    """Why two nodes cannot talk to each other, None when they can. Observers are of any run."""
    if theirs.version != own.version:
        return f"{OTHER_VERSION}: {theirs.version} there, {own.version} here; update the older node"
    if OBSERVER_RUN_ID in (theirs.run_id, own.run_id) or theirs.run_id == own.run_id:
        return None
    return f"{OTHER_RUN}: {theirs.run_id.hex()[:16]} there, {own.run_id.hex()[:16]} here"


def from_our_side(reason: str) -> str:
    """What the refuser says of a mismatch, as we see it: its "here" is our "there"."""
    return _MISMATCH.sub(r"\1: \3 there, \2 here", reason)


async def exchange_hello(channel: Channel, own: Hello) -> Hello:
    """As the dialler: say hello, return theirs. RefusedError, LinkBrokenError, Reject."""
    with trio.move_on_after(channel.timings.hello_s):
        await channel.send_now(own)
        peers: tuple[PeerAddress, ...] = ()
        while (message := await _receive(channel)) is not None:
            match message:
                case Hello():
                    return _check(own, message, channel)
                case Peers(peers=peers):
                    pass  # what a full node sends before its bye
                case Bye(reason=reason):
                    raise RefusedError(from_our_side(reason), peers)
                case _:
                    raise Reject(RejectReason.UNREQUESTED, f"{type(message).__name__} before hello")
        raise RefusedError("it closed the connection without a word")
    raise RefusedError(f"it did not say hello within {channel.timings.hello_s:.0f} s")


async def await_hello(channel: Channel) -> Hello:
    """As the side that was dialled: their hello, unchecked. RefusedError, LinkBrokenError, Reject."""
    with trio.move_on_after(channel.timings.hello_s):
        message = await _receive(channel)
        if isinstance(message, Hello):
            channel.link.introduced()
            return message
        if message is None or isinstance(message, Bye):
            raise RefusedError("it left before saying hello")
        raise Reject(RejectReason.UNREQUESTED, f"{type(message).__name__} before hello")
    raise SilentError(f"it did not say hello within {channel.timings.hello_s:.0f} s")


async def refuse(channel: Channel, reason: str, peers: tuple[PeerAddress, ...] = ()) -> None:
    """Say why not, recommend others, and wait a moment so that the words arrive."""
    with trio.move_on_after(channel.timings.bye_s):
        try:
            recommended: tuple[Message, ...] = (Peers(peers=peers),) if peers else ()
            await channel.send_now(*recommended, Bye(reason=reason))
            await channel.link.send_eof()
            while await channel.link.receive_some(1_024):
                pass
        except LinkBrokenError:
            pass


async def _receive(channel: Channel) -> Message | None:
    received = await channel.receive_untrusted()
    return None if received is None else received[0]


def _check(own: Hello, theirs: Hello, channel: Channel) -> Hello:
    reason = mismatch(own, theirs)
    if reason is not None:
        raise RefusedError(reason)
    channel.trust()
    return theirs


def own_hello(*, run_id: bytes, agent: str, listen: tuple[str, ...], head_step: int) -> Hello:
    """This node's hello; addresses that do not fit into the frame of a stranger are left out."""
    count = ADDRESSES_PER_PEER_MAX
    while True:
        hello = Hello(version=VERSION, run_id=run_id, agent=agent, listen=listen[:count], head_step=head_step)
        if not hello.listen or len(encode(hello)) <= bounds.HELLO_FRAME_BYTES_MAX:
            return hello
        count = len(hello.listen) - 1
