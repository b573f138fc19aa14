"""Which accepted connections may shake hands, and when. A handshake is dear: its first 60 bytes cost us 2 ms."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import trio

from sfnode.network import bounds
from sfnode.network.policy import Origins, TokenBuckets


class NotAdmittedError(Exception):
    """Too many of this connection's network are here, or have come just now."""


class Doorkeeper:
    """Counts those that shake hands, and how often each network has done so, by `Origins`."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._shaking_hands: list[str] = []
        self._turns = TokenBuckets(bounds.HANDSHAKES_BURST, bounds.HANDSHAKES_PER_S)

    @asynccontextmanager
    async def admitted(self, host: str, strangers: Iterable[str]) -> AsyncIterator[None]:
        """Wait for the turn of this address, then shake hands inside. NotAdmittedError.

        ``strangers``: addresses of connections that are up, but have not said who they are.
        """
        if not self._origins.has_stranger_room(host, [*self._shaking_hands, *strangers]):
            raise NotAdmittedError(f"too many strangers like {host}")
        self._shaking_hands.append(host)
        try:
            await self._wait_for_turn(host)
            yield
        finally:
            self._shaking_hands.remove(host)

    async def _wait_for_turn(self, host: str) -> None:
        crowd = self._origins.crowd_of(host)
        if crowd is None:
            return
        wait_s = self._turns.take(crowd, trio.current_time(), wait_s_max=bounds.HANDSHAKE_WAIT_S)
        if wait_s is None:
            raise NotAdmittedError(f"too many handshakes with those like {host}")
        if wait_s > 0:
            await trio.sleep(wait_s)
