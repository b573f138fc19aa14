"""The handshake of a session. The dialler says hello; the other side answers with its own hello or a bye."""

import re

import trio

from protocol.errors import Reject, RejectReason
from protocol.limits import ADDRESSES_PER_PEER_MAX
from protocol.wire import VERSION, Bye, Hello, Message, PeerAddress, Peers, encode
from sfnode.network import bounds
from sfnode.network.sessions.channel import Channel
from sfnode.network.transport import LinkBrokenError

OBSERVER_RUN_ID = bytes(32)  # in a hello: an observer, which wants only manifest and files
# Beginnings of a bye's reason. The dialler waits longer before it retries if a reason does not change by itself.
OTHER_RUN = "other run"
OTHER_VERSION = "other protocol version"
FULL = "full"
GIVE_WAY = "full, and a newcomer from another network needs the place"
SHORT_OF_MEMORY = "full, and this node is short of memory"
NO_BASIS = "no basis here"
DISCOURAGED = "not now"
DUPLICATE = "there is a newer session between us"
_MISMATCH = re.compile(rf"^({OTHER_RUN}|{OTHER_VERSION}): (\w+) there, (\w+) here")


class RefusedError(Exception):
    """The peer refuses this session. ``peers`` are the peers that it recommends instead."""

    def __init__(self, reason: str, peers: tuple[PeerAddress, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.peers = peers

    @property
    def is_lasting(self) -> bool:
        """Return whether asking again soon is pointless."""
        return self.reason.startswith((OTHER_RUN, OTHER_VERSION))


class SilentError(RefusedError):
    """The peer opened a session and did not say hello within HELLO_S."""


def mismatch(own: Hello, theirs: Hello) -> str | None:
    """Return the reason why two nodes cannot talk, or None if they can. Observers match every run."""
    if theirs.version != own.version:
        return f"{OTHER_VERSION}: {theirs.version} there, {own.version} here; update the older node"
    if OBSERVER_RUN_ID in (theirs.run_id, own.run_id) or theirs.run_id == own.run_id:
        return None
    return f"{OTHER_RUN}: {theirs.run_id.hex()[:16]} there, {own.run_id.hex()[:16]} here"


def from_our_side(reason: str) -> str:
    """Restate a peer's reason of a mismatch from our side: its "here" is our "there"."""
    return _MISMATCH.sub(r"\1: \3 there, \2 here", reason)


async def exchange_hello(channel: Channel, own: Hello) -> Hello:
    """Say hello as the dialler, and return the peer's hello. RefusedError, LinkBrokenError, Reject."""
    with trio.move_on_after(channel.timings.hello_s):
        await channel.send_now(own)
        peers: tuple[PeerAddress, ...] | None = None
        while (message := await channel.receive_untrusted()) is not None:
            match message:
                case Hello():
                    return _check(own, message, channel)
                case Peers(peers=named) if peers is None:
                    peers = named  # a full node sends these before its bye
                case Bye(reason=reason):
                    raise RefusedError(from_our_side(reason), peers or ())
                case _:
                    raise Reject(RejectReason.UNREQUESTED, f"{type(message).__name__} before hello")
        raise RefusedError("it closed the connection without a word")
    raise RefusedError(f"it did not say hello within {channel.timings.hello_s:.0f} s")


async def await_hello(channel: Channel) -> Hello:
    """Return the dialler's hello, unchecked. RefusedError, LinkBrokenError, Reject."""
    with trio.move_on_after(channel.timings.hello_s):
        message = await channel.receive_untrusted()
        if isinstance(message, Hello):
            channel.link.introduced()
            return message
        if message is None or isinstance(message, Bye):
            raise RefusedError("it left before saying hello")
        raise Reject(RejectReason.UNREQUESTED, f"{type(message).__name__} before hello")
    raise SilentError(f"it did not say hello within {channel.timings.hello_s:.0f} s")


async def refuse(channel: Channel, reason: str, peers: tuple[PeerAddress, ...] = ()) -> None:
    """Send recommended peers and a bye with the reason, and wait up to BYE_S so that they arrive."""
    with trio.move_on_after(channel.timings.bye_s):
        try:
            recommended: tuple[Message, ...] = (Peers(peers=peers),) if peers else ()
            await channel.send_now(*recommended, Bye(reason=reason))
            await channel.link.send_eof()
            while await channel.link.receive_some(1_024):
                pass
        except LinkBrokenError:
            pass


def _check(own: Hello, theirs: Hello, channel: Channel) -> Hello:
    reason = mismatch(own, theirs)
    if reason is None and theirs.run_id == OBSERVER_RUN_ID:
        reason = "it takes part in no run"  # observers only dial
    if reason is not None:
        raise RefusedError(reason)
    channel.trust()
    return theirs


def own_hello(*, run_id: bytes, agent: str, listen: tuple[str, ...], head_step: int) -> Hello:
    """Return this node's hello; leave out addresses that do not fit into the frame of a stranger."""
    count = ADDRESSES_PER_PEER_MAX
    while True:
        hello = Hello(version=VERSION, run_id=run_id, agent=agent, listen=listen[:count], head_step=head_step)
        if not hello.listen or len(encode(hello)) <= bounds.HELLO_FRAME_BYTES_MAX:
            return hello
        count = len(hello.listen) - 1
