"""The heartbeat of a session: its pings, their round-trip time, and when a silent peer counts as gone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from protocol.wire import Message, Ping, Pong
from sfnode.network.network_config import Timings


class Heartbeat:
    """Keeps one connection alive, and notices the silence of its peer, which TCP alone may not do for hours.

    Attributes:
        rtt_ms: round-trip time of the last ping that was answered; None until the first pong.
    """

    def __init__(self, timings: Timings) -> None:
        self.rtt_ms: float | None = None
        self._timings = timings
        self._heard_s = trio.current_time()
        self._is_delivering = False
        self._ping, self._ping_s = Ping(nonce=0), self._heard_s  # the last ping, and when it was queued

    def heard(self) -> None:
        self._heard_s = trio.current_time()

    def answered(self, pong: Pong) -> None:
        """Measure the round trip if this answers the last ping."""
        if pong.nonce == self._ping.nonce:
            self.rtt_ms = (self._heard_s - self._ping_s) * 1000

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """Count no silence in the block: the session does not read while the node handles a message."""
        self._is_delivering = True
        try:
            yield
        finally:
            self._is_delivering = False
            self.heard()

    async def run(self, send: Callable[[Message], bool], end: Callable[[str], None]) -> None:
        """Send pings by ``send``, which returns whether it had room; call ``end`` after DEAD_S of silence."""
        while True:
            await trio.sleep(self._timings.ping_interval_s)
            silent_s = trio.current_time() - self._heard_s
            if silent_s >= self._timings.dead_s and not self._is_delivering:
                end(f"nothing heard for {silent_s:.0f} s")
            ping = Ping(nonce=self._ping.nonce + 1)
            if send(ping):
                self._ping, self._ping_s = ping, trio.current_time()
