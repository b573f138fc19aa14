"""``/sfnode/reach/1``: how a peer sees the asker, and whether the asker can be dialled from there (SPEC 8.7).

A separate protocol in addition to ``/sfnode/1``: a node without it only cannot answer. A node dials only the address
from which the question came, so that nobody can make it dial a stranger.
"""

import ipaddress
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

import trio

from sfnode.network import bounds
from sfnode.network.policy import Origins, ip_groups
from sfnode.network.transport.link import Link, LinkBrokenError

PROTOCOL = "/sfnode/reach/1"
_REQUEST = struct.Struct(">H")
_ANSWER = struct.Struct(">BQ16sH")


class DialBack(IntEnum):
    """The outcome of the dial back. Wire numbers, never renumbered."""

    NOT_ASKED = 0
    REACHED = 1
    NOT_REACHED = 2
    NOT_NOW = 3  # asked too often, or through a proxy, or the node is busy


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachAnswer:
    """A peer's answer to the question how it sees us.

    Attributes:
        unix_ms: the peer's clock when it answered.
        host, port: the source of our connection, as the peer sees it.
    """

    outcome: DialBack
    unix_ms: int
    host: str
    port: int


class Reachability:
    """Answers peers. Makes at most REACH_AT_ONCE_MAX dials at a time, and one per REACH_INTERVAL_S to each address.

    A proxy of the operator is never dialled: a stranger behind it would learn which of its ports are open.
    """

    def __init__(self, origins: Origins = ip_groups.DEFAULT_ORIGINS) -> None:
        self._origins = origins
        self._dialling = 0
        self._dialled_s: dict[str, float] = {}

    async def answer(self, link: Link) -> None:
        """Answer one question of a peer how we see it; ignore an incomplete one, and a broken stream."""
        host = link.remote_host
        with suppress(LinkBrokenError), trio.move_on_after(bounds.REACH_ANSWER_S):
            request = await link.receive_exactly(_REQUEST.size)
            if len(request) < _REQUEST.size:
                return
            outcome = await self._dial_back(host, _REQUEST.unpack(request)[0])
            address = ipaddress.ip_address(host.partition("%")[0])
            seen = ipaddress.IPv6Address(f"::ffff:{address}") if address.version == 4 else address
            answer = _ANSWER.pack(outcome, int(time.time() * 1_000), seen.packed, link.remote_port)
            await link.send_all(answer)

    async def _dial_back(self, host: str, port: int) -> DialBack:
        if port == 0:
            return DialBack.NOT_ASKED
        if self._origins.crowd_of(host) is None:
            return DialBack.NOT_NOW
        now_s = trio.current_time()
        recent = {known: at for known, at in self._dialled_s.items() if now_s - at < bounds.REACH_INTERVAL_S}
        self._dialled_s = recent
        if host in recent or self._dialling >= bounds.REACH_AT_ONCE_MAX or len(recent) >= bounds.REACH_ADDRESSES_MAX:
            return DialBack.NOT_NOW
        recent[host] = now_s
        self._dialling += 1
        try:
            return await _can_connect(host, port)
        finally:
            self._dialling -= 1


async def _can_connect(host: str, port: int) -> DialBack:
    try:
        with trio.fail_after(bounds.REACH_DIAL_S):
            stream = await trio.open_tcp_stream(host, port)
            await trio.aclose_forcefully(stream)
    except (OSError, trio.TooSlowError):
        return DialBack.NOT_REACHED
    return DialBack.REACHED


async def ask(link: Link, port: int) -> ReachAnswer | None:
    """Ask the peer of this stream to dial ``port`` (0: only how it sees us); return None without an answer."""
    data = b""
    with trio.move_on_after(bounds.REACH_ANSWER_S):
        try:
            await link.send_all(_REQUEST.pack(port))
            data = await link.receive_exactly(_ANSWER.size)
        except LinkBrokenError:
            return None
    return decode_answer_untrusted(data)


def decode_answer_untrusted(data: bytes) -> ReachAnswer | None:
    """Decode the answer in ``data``; return None if it is malformed."""
    if len(data) != _ANSWER.size or data[0] not in list(DialBack):
        return None
    outcome, unix_ms, packed, port = _ANSWER.unpack(data)
    address = ipaddress.IPv6Address(packed)
    host = str(address.ipv4_mapped or address)
    return ReachAnswer(outcome=DialBack(outcome), unix_ms=unix_ms, host=host, port=port)
