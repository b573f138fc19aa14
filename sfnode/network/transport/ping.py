"""``/ipfs/ping/1.0.0``, for peers of other libraries: echoes 32 bytes, at most PINGS_PER_S times a second.

The library's own handler echoes as fast as a peer asks: 62 bytes on the wire keep us busy for half a millisecond.
"""

from contextlib import suppress

import trio

from sfnode.network import bounds
from sfnode.network.policy import TokenBucket
from sfnode.network.transport.link import Link, LinkBrokenError

PROTOCOL = "/ipfs/ping/1.0.0"
_PING_BYTES = 32


async def answer_pings(link: Link) -> None:
    """Echo pings until the peer ends the stream, or sends nothing for PING_IDLE_S."""
    pings = TokenBucket(bounds.PINGS_BURST, trio.current_time())
    with suppress(LinkBrokenError):
        while True:
            ping = b""
            with trio.move_on_after(bounds.PING_IDLE_S):
                ping = await link.receive_exactly(_PING_BYTES)
            if len(ping) < _PING_BYTES:
                return
            wait_s = pings.take(1, bounds.PINGS_PER_S, trio.current_time())
            if wait_s > 0:
                await trio.sleep(wait_s)
            with trio.move_on_after(bounds.WRITE_S):
                await link.send_all(ping)
