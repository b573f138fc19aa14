"""Neighbours with pieces, in virtual time and without a network: each behaves in its own way."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from protocol.wire import PeerId
from sfnode.network.sessions.file_download import Download
from sfnode.network.sessions.handshake import RefusedError
from sfnode.network.sessions.neighbour_files import Ask, NeighbourFiles

_FLIPPED = bytes(byte ^ 1 for byte in range(256))
Behaviour = Callable[["Givers", PeerId, str], Awaitable[bytes]]


@dataclass
class Givers(NeighbourFiles):
    """Neighbours by name, each with what it does when it is asked for a hash; ``held``: what the honest ones have."""

    held: dict[str, bytes]
    behaviours: dict[str, Behaviour]
    asked: list[tuple[float, str, str]] = field(default_factory=list)  # when, whom, for what
    streams: Counter[str] = field(default_factory=Counter)
    at_once: int = 0
    given_bytes: int = 0
    asked_bytes: int = 0  # with the last question
    arrivals: dict[str, float] = field(default_factory=dict)
    caught: list[str] = field(default_factory=list)  # who gave what is not the file

    def gave_false_bytes(self, peer: PeerId, _name: str) -> None:
        """The network ends the session with such a one."""
        self.caught.append(peer)
        self.behaviours.pop(peer, None)

    def arrives_later(self, peer: str, after_s: float) -> None:
        """That one is a neighbour from then on only."""
        self.arrivals[peer] = trio.current_time() + after_s

    def peers(self) -> frozenset[PeerId]:
        now_s = trio.current_time()
        return frozenset(PeerId(each) for each in self.behaviours if self.arrivals.get(each, 0.0) <= now_s)

    @asynccontextmanager
    async def asking(self, peer: PeerId) -> AsyncIterator[Ask]:
        if peer not in self.behaviours:
            raise RefusedError("it has no stream for files")
        self.streams[peer] += 1
        self.at_once = max(self.at_once, len(+self.streams))

        async def ask(download: Download) -> bytes:
            sha256 = download.wanted.sha256
            assert sha256 is not None
            self.asked.append((trio.current_time(), peer, sha256))
            if peer not in self.behaviours:
                raise RefusedError("the connection was lost")
            wanted = download.wanted
            self.asked_bytes = wanted.size
            data = await self.behaviours[peer](self, peer, sha256)
            assert len(data) == wanted.total
            if wanted.is_of_one_peer and hashlib.sha256(data).hexdigest() != sha256:
                self.gave_false_bytes(peer, wanted.name)
                raise RefusedError("message_field: a file with another hash than was asked for")
            data = data[wanted.start : wanted.end]
            self.given_bytes += len(data)
            return data

        try:
            yield ask
        finally:
            self.streams[peer] -= 1

    def of(self, peer: str) -> list[float]:
        """When that one was asked."""
        return [when for when, whom, _ in self.asked if whom == peer]


def honest(piece_s: float = 0.1) -> Behaviour:
    """Gives what it has, each piece in that time."""

    async def give(givers: Givers, _peer: PeerId, sha256: str) -> bytes:
        await trio.sleep(piece_s)
        if sha256 not in givers.held:
            raise RefusedError("it said bye instead of sending the piece")
        return givers.held[sha256]

    return give


def slowing(piece_s: float, factor: float) -> Behaviour:
    """Gives what it has, and takes that much longer for each piece after the first two."""
    given = 0

    async def give(givers: Givers, _peer: PeerId, sha256: str) -> bytes:
        nonlocal given
        given += 1
        await trio.sleep(piece_s * factor ** ((given - 1) // 2))
        return givers.held[sha256]

    return give


def paced(bytes_per_s: float) -> Behaviour:
    """Gives what it has, at that pace."""

    async def give(givers: Givers, _peer: PeerId, sha256: str) -> bytes:
        await trio.sleep(givers.asked_bytes / bytes_per_s)
        return givers.held[sha256]

    return give


def false(bytes_per_s: float, *, when_alone: Behaviour | None = None) -> Behaviour:
    """Gives bytes that are not the file's, at that pace. ``when_alone``: what it does when asked for all of it."""

    async def give(givers: Givers, peer: PeerId, sha256: str) -> bytes:
        if when_alone is not None and givers.asked_bytes == len(givers.held[sha256]):
            return await when_alone(givers, peer, sha256)
        await trio.sleep(givers.asked_bytes / bytes_per_s)
        return givers.held[sha256].translate(_FLIPPED)

    return give


def lying(piece_s: float = 0.1) -> Behaviour:
    """What the network makes of a piece with another hash: the peer is gone."""

    async def give(givers: Givers, peer: PeerId, _sha256: str) -> bytes:
        await trio.sleep(piece_s)
        givers.behaviours.pop(peer, None)
        raise RefusedError("message_field: a piece with another hash than was asked for")

    return give


async def stalling(_givers: Givers, _peer: PeerId, _sha256: str) -> bytes:
    """Takes the question and says nothing, for as long as anybody would listen."""
    await trio.sleep_forever()


def stalling_after(pieces: int) -> Behaviour:
    """Gives so many pieces at once, then takes questions and says nothing."""
    left = pieces

    async def give(givers: Givers, peer: PeerId, sha256: str) -> bytes:
        nonlocal left
        left -= 1
        return await (stalling if left < 0 else honest(0.0))(givers, peer, sha256)

    return give


async def lacking(_givers: Givers, _peer: PeerId, _sha256: str) -> bytes:
    """Says that it has nothing."""
    await trio.sleep(0.05)
    raise RefusedError("it said bye instead of sending the piece: no basis here")


def leaving(pieces: int, piece_s: float = 0.1) -> Behaviour:
    """Gives so many pieces, then is gone."""
    left = pieces

    async def give(givers: Givers, peer: PeerId, sha256: str) -> bytes:
        nonlocal left
        left -= 1
        if left < 0:
            givers.behaviours.pop(peer, None)
            raise RefusedError("the connection was lost")
        return await honest(piece_s)(givers, peer, sha256)

    return give
