"""Admission of accepted connections to the handshake, which is expensive: its first 60 bytes cost us 2 ms."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import trio

from sfnode.network import bounds
from sfnode.network.policy import Origins, TokenBuckets


class NotAdmittedError(Exception):
    """The network of this connection has too many strangers here, or too many recent handshakes."""


class Doorkeeper:
    """Limits the connections before their hello and the rate of handshakes, per group of `Origins`."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._shaking_hands: list[str] = []
        self._turns = TokenBuckets(bounds.HANDSHAKES_BURST, bounds.HANDSHAKES_PER_S)

    @asynccontextmanager
    async def admitted(self, host: str, strangers: Iterable[str]) -> AsyncIterator[None]:
        """Wait for the turn of this address; the handshake runs inside the context. NotAdmittedError.

        ``strangers``: addresses of the connections that are up but have not sent their hello.
        """
        if not self._origins.has_stranger_room(host, [*self._shaking_hands, *strangers]):
            raise NotAdmittedError(f"too many strangers like {host}")
        self._shaking_hands.append(host)
        try:
            crowd = self._origins.crowd_of(host)
            if crowd is not None:
                wait_s = self._turns.take(crowd, trio.current_time(), wait_s_max=bounds.HANDSHAKE_WAIT_S)
                if wait_s is None:
                    raise NotAdmittedError(f"too many handshakes with those like {host}")
                if wait_s > 0:
                    await trio.sleep(wait_s)
            yield
        finally:
            self._shaking_hands.remove(host)
