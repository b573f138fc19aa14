"""Guards against what strangers open here: a stream's handler never ends the host, and nobody opens too much.

A handshake is expensive: its first 60 bytes cost us 2 ms. So the doorkeeper admits connections to it. Without the guard
of streams, trio_manager.py:385 cancels the whole host on any exception in a handler, and any peer can cause one: a
protocol name that is not UTF-8 is enough (multiselect_communicator.py:58).
"""

import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import trio
from libp2p.exceptions import BaseLibp2pError

from sfnode.event_log import log
from sfnode.network import bounds
from sfnode.network.policy import Origins, TokenBuckets
from sfnode.unexpected_errors import Boundary

StreamHandler = Callable[[Any], Awaitable[None]]


class StreamGuard:
    """Wraps the handler of all protocols: an exception ends the stream, not the host, and counts as a failure.

    `Host` catches the slips of our own handlers before. The number of a peer's streams is limited, and streams that it
    opens faster than STREAMS_PER_S wait. ``on_refused`` is called with a peer that exceeds the limit.
    """

    def __init__(self, handler: StreamHandler) -> None:
        self._handler = handler
        self._open: Counter[Any] = Counter()
        self._turns = TokenBuckets(bounds.STREAMS_BURST, bounds.STREAMS_PER_S)
        self.on_refused: Callable[[str], None] = lambda _peer: None
        self.failures = 0
        self.refused = 0

    async def handle(self, stream: Any) -> None:
        """Handle one inbound stream from its first byte to its end."""
        peer = stream.muxed_conn.peer_id
        is_done = False

        def failed(_error: Exception) -> None:
            self.failures += 1
            log(logging.DEBUG, "stream_failed", is_failure=True, peer=str(peer))

        self._open[peer] += 1
        try:
            with Boundary(failed):
                if self._open[peer] > bounds.INBOUND_STREAMS_PER_PEER_MAX:
                    self.refused += 1
                    self.on_refused(str(peer))
                else:
                    wait_s = self._turns.take(str(peer), trio.current_time(), wait_s_max=math.inf)
                    await trio.sleep(wait_s or 0.0)  # short, since the peer's open streams are few
                    await self._handler(stream)
                    is_done = await _has_ended(stream.muxed_stream)
            if not is_done:
                with Boundary(failed):
                    await stream.reset()
        finally:
            self._open[peer] -= 1
            if not self._open[peer]:
                del self._open[peer]


async def _has_ended(muxed: Any) -> bool:
    """Let the peer end its side of a stream that was handled; return whether it has done so within STREAM_END_S.

    Until then yamux keeps the stream, and every frame of the connection costs more for it.
    """
    with trio.move_on_after(bounds.STREAM_END_S), suppress(BaseLibp2pError):
        await muxed.read(1)  # only its end is due
    return bool(muxed.closed)


class NotAdmittedError(Exception):
    """The network of this connection has too many strangers here, or too many recent handshakes."""


@dataclass(slots=True, eq=False)
class Caller:
    """One inbound connection; ``muxed`` follows its handshake."""

    host: str
    crowd: str | None
    socket: trio.socket.SocketType
    muxed: Any = None

    @property
    def is_stranger(self) -> bool:
        """Return whether it has not sent its hello."""
        return self.muxed is None or bool(self.muxed.is_stranger)


class Doorkeeper:
    """Limits inbound connections in total; those before their hello and the rate of handshakes per group of `Origins`.

    When all are taken, a newcomer gets the place of the oldest stranger of the most crowded group.
    """

    def __init__(self, origins: Origins, places_max: int = bounds.CONNECTIONS_MAX) -> None:
        self._origins = origins
        self._places_max = places_max
        self._callers: list[Caller] = []  # the oldest first
        self._turns = TokenBuckets(bounds.HANDSHAKES_BURST, bounds.HANDSHAKES_PER_S)

    @contextmanager
    def place(self, host: str, socket: trio.socket.SocketType) -> Iterator[Caller]:
        """Hold a place for a connection; NotAdmittedError if all are taken and nobody there is a stranger."""
        if len(self._callers) >= self._places_max:
            strangers = [each for each in self._callers if each.is_stranger]
            if not strangers:
                raise NotAdmittedError("all places are taken")
            crowds = Counter(each.crowd for each in strangers)
            leaving = max(strangers, key=lambda each: crowds[each.crowd])
            leaving.socket.close()  # which ends its task
            self._callers.remove(leaving)
        caller = Caller(host, self._origins.crowd_of(host), socket)
        self._callers.append(caller)
        try:
            yield caller
        finally:
            if caller in self._callers:
                self._callers.remove(caller)

    async def admit(self, caller: Caller) -> None:
        """Wait until this connection may shake hands. NotAdmittedError."""
        if caller.crowd is None:
            return
        is_limited = self._origins.is_limited(caller.host)
        most = bounds.STRANGERS_PER_GROUP_MAX if is_limited else bounds.STRANGERS_PER_ADDRESS_MAX
        if sum(each.is_stranger and each.crowd == caller.crowd for each in self._callers) > most:
            raise NotAdmittedError(f"too many strangers like {caller.host}")
        wait_s = self._turns.take(caller.crowd, trio.current_time(), wait_s_max=bounds.HANDSHAKE_WAIT_S)
        if wait_s is None:
            raise NotAdmittedError(f"too many handshakes with those like {caller.host}")
        if wait_s > 0:
            await trio.sleep(wait_s)
