"""A giver with a slow line and several joiners: each piece that it sends is of use to somebody."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from protocol.errors import Reject
from protocol.limits import MODEL_PIECE_BYTES
from protocol.wire import PeerId
from sfnode.network.network_config import Timings
from sfnode.network.sessions.bandwidth_limit import Pace, Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.file_download import Download, Wanted
from sfnode.network.sessions.file_server import FileServer, ServedRun
from sfnode.network.sessions.handshake import RefusedError
from sfnode.network.sessions.neighbour_files import Ask
from sfnode.network.transport.link import Link, LinkBrokenError
from sfnode.node.piece_fetcher import PieceFetcher
from tests.support.network_nodes import Memory

PIECES = [hashlib.shake_256(bytes([number])).digest(MODEL_PIECE_BYTES) for number in range(2)]
HASHES = [hashlib.sha256(piece).hexdigest() for piece in PIECES]
GIVER = PeerId("giver")


class MemoryLink(Link):
    """One end of a stream in memory."""

    def __init__(self, stream: Any, peer: PeerId, host: str) -> None:
        self._ends, self.peer, self.remote_host = stream, peer, host

    async def receive_some(self, bytes_max: int) -> bytes:
        try:
            return bytes(await self._ends.receive_some(bytes_max))
        except trio.BrokenResourceError:
            raise LinkBrokenError("gone") from None

    async def send_all(self, data: bytes) -> None:
        try:
            await self._ends.send_all(data)
        except trio.BrokenResourceError:
            raise LinkBrokenError("gone") from None

    async def send_eof(self) -> None:
        await self._ends.send_eof()

    async def aclose(self) -> None:
        await self._ends.aclose()


class Giver:
    """Serves streams of joiners, all with the limit together."""

    def __init__(self, nursery: trio.Nursery, bytes_per_s: float) -> None:
        self.traffic = Traffic(upload_bytes_per_s=bytes_per_s)
        held = dict(zip(HASHES, map(Memory, PIECES), strict=True))
        run = ServedRun(run_id=bytes(32), manifest_bytes=b"", find_piece=held.get)
        self._server = FileServer(run, lambda link: Channel(link, Timings(), self.traffic), bytes_per_s=bytes_per_s / 2)
        self._nursery = nursery

    def get(self, _peer: PeerId) -> object:
        """As `OpenSessions`: each joiner is a neighbour."""
        return self

    async def serve(self, link: MemoryLink) -> None:
        try:
            await self._server.serve_neighbour(link, cast(Any, self))
        finally:
            with trio.CancelScope(shield=True):
                await link.aclose()

    def sources_of(self, joiner: str) -> Any:
        """What a joiner's `PieceFetcher` asks."""
        giver, nursery = self, self._nursery

        class Sources:
            def peers(self) -> frozenset[PeerId]:
                return frozenset([GIVER])

            @asynccontextmanager
            async def asking(self, peer: PeerId) -> AsyncIterator[Ask]:
                mine, theirs = memory_stream_pair()
                nursery.start_soon(giver.serve, MemoryLink(theirs, PeerId(joiner), joiner))
                channel = Channel(MemoryLink(mine, peer, "192.0.2.1"), Timings(), Traffic())
                channel.trust()

                async def ask(download: Download) -> bytes:
                    try:
                        return await download.run(channel)
                    except (LinkBrokenError, Reject) as error:
                        raise RefusedError(str(error)) from None

                try:
                    yield ask
                finally:
                    await mine.aclose()

        return Sources()


@pytest.mark.parametrize(("bytes_per_s", "joiners"), [(50_000, 6), (20_000, 3)])
async def test_pieces__giver_has_a_slow_line_and_several_joiners__little_is_sent_in_vain(
    autojump_clock: MockClock, bytes_per_s: float, joiners: int
) -> None:
    """Eight streams shared the line, each part came too late, and in six hours nobody had a single piece."""
    came: list[int] = []

    async def keep(number: int, _data: bytes, _giver: PeerId) -> None:
        came.append(number)

    async with trio.open_nursery() as serving:
        giver = Giver(serving, bytes_per_s)
        async with trio.open_nursery() as joining:
            for joiner in range(joiners):
                fetcher = PieceFetcher(giver.sources_of(f"10.0.0.{joiner}"), Pace(0))
                wanted = len(HASHES), lambda number: Wanted.piece(HASHES[number], MODEL_PIECE_BYTES)
                joining.start_soon(fetcher.fetch, *wanted, keep)
        serving.cancel_scope.cancel()
    needed = joiners * len(PIECES) * MODEL_PIECE_BYTES
    assert len(came) == joiners * len(PIECES)
    assert giver.traffic.bytes_out < 1.5 * needed
    assert trio.current_time() < 2 * needed / (bytes_per_s / 2)
