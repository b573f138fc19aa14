"""Pieces of a model over real connections: given to neighbours within bounds, and what becomes of those who lie."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio

from protocol.framing import frame
from protocol.limits import PART_BYTES_MAX
from protocol.wire import Bye, FilePart, FileRequest, encode
from sfnode.network import bounds
from sfnode.network.network_config import NetworkConfig
from sfnode.network.sessions.bandwidth_limit import Pace, Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.file_download import Download, Wanted
from sfnode.network.sessions.file_server import FILES_PROTOCOL, FileSource, ServedRun
from sfnode.network.sessions.handshake import FULL, OBSERVER_RUN_ID, RefusedError, exchange_hello, own_hello
from sfnode.network.sessions.neighbour_files import Ask
from sfnode.network.transport.link import Link, LinkBrokenError
from tests.support.network_nodes import (
    CALM,
    HELLO,
    MANIFEST,
    RUN_ID,
    Memory,
    Node,
    address_of,
    dial,
    network,
    network_of,
    read_to_end,
    running_host,
    start,
    until,
)

PIECE = hashlib.shake_256(b"piece").digest(5 * PART_BYTES_MAX + 100)
HASH = hashlib.sha256(PIECE).hexdigest()


@dataclass
class Model:
    """What a giver has, and how often it was looked for."""

    held: dict[str, bytes] = field(default_factory=lambda: {HASH: PIECE})
    asked: list[str] = field(default_factory=list)

    def find(self, sha256: str) -> FileSource | None:
        self.asked.append(sha256)
        return Memory(self.held[sha256]) if sha256 in self.held else None


def giver(model: Model, bytes_per_s: float = 0.0) -> ServedRun:
    return ServedRun(run_id=RUN_ID, manifest_bytes=MANIFEST, find_piece=model.find, pieces_bytes_per_s=bytes_per_s)


@asynccontextmanager
async def neighbours(run: ServedRun) -> AsyncIterator[tuple[Node, Node]]:
    """A giver, and one who may ask it."""
    async with trio.open_nursery() as nursery:
        giving = await start(nursery, network_of(1, run))
        asking = await start(nursery, network(2, NetworkConfig(bootstrap=giving.addresses)))
        await until(lambda: giving.connected() and asking.connected())
        yield giving, asking
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def stream(asking: Node, giving: Node) -> AsyncIterator[Ask]:
    with trio.fail_after(10.0):
        async with asking.network.neighbour_files.asking(giving.peer) as ask:
            yield ask


def wanted(sha256: str = HASH, size: int = len(PIECE)) -> Download:
    return Download(Wanted.piece(sha256, size))


# --- honest ones


async def test_piece__neighbour_has_it__comes_and_the_stream_gives_the_next() -> None:
    model = Model()
    other = hashlib.sha256(b"list").hexdigest()
    model.held[other] = b"list"
    async with neighbours(giver(model)) as (giving, asking), stream(asking, giving) as ask:
        assert await ask(wanted()) == PIECE
        assert await ask(wanted(other, 4)) == b"list"
    assert model.asked == [HASH, other]


async def test_piece__neighbour_lacks_it__says_so_and_nothing_is_held_against_it() -> None:
    async with neighbours(giver(Model())) as (giving, asking):
        with pytest.raises(RefusedError, match="no basis here"):
            async with stream(asking, giving) as ask:
                await ask(wanted("0" * 64))
        assert not asking.network.sessions.is_discouraged(giving.peer)
        async with stream(asking, giving) as ask:
            assert await ask(wanted()) == PIECE


async def test_piece__peer_is_no_neighbour__there_is_no_stream() -> None:
    async with neighbours(giver(Model())) as (giving, asking):
        await giving.stop()
        await until(asking.disconnected)
        with pytest.raises(RefusedError):
            async with stream(asking, giving):
                pass


async def test_piece__stranger_asks__gets_none() -> None:
    model = Model()
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as stranger:
        giving = await start(nursery, network_of(1, giver(model)))
        channel = Channel(await dial(stranger, giving), CALM, Traffic())
        await exchange_hello(channel, own_hello(run_id=OBSERVER_RUN_ID, agent="", listen=(), head_step=0))
        channel.trust()
        await channel.send_now(FileRequest(sha256=bytes.fromhex(HASH), offset=0))
        received = await channel.receive_untrusted()
        assert received and isinstance(received, Bye) and not model.asked
        nursery.cancel_scope.cancel()


async def test_pieces__given_at_a_rate__all_streams_together_keep_to_it() -> None:
    async with neighbours(giver(Model(), bytes_per_s=len(PIECE) * 2)) as (giving, asking):
        started_s = trio.current_time()

        async def take() -> None:
            async with stream(asking, giving) as ask:
                await ask(wanted())
                await ask(wanted())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            nursery.start_soon(take)
        least_s = (4 * 6 - 8) * PART_BYTES_MAX / (len(PIECE) * 2)  # six parts each; eight are free
        assert trio.current_time() - started_s >= least_s


async def test_pieces__taken_at_a_rate__all_streams_together_keep_to_it() -> None:
    pace = Pace(len(PIECE) * 2)
    async with neighbours(giver(Model())) as (giving, asking):
        started_s = trio.current_time()

        async def take() -> None:
            async with stream(asking, giving) as ask:
                for _ in range(2):
                    await ask(Download(Wanted.piece(HASH, len(PIECE)), pace=pace))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            nursery.start_soon(take)
        assert trio.current_time() - started_s >= (4 * 6 - 8) * PART_BYTES_MAX / (len(PIECE) * 2)


async def test_pieces__one_neighbour_wants_many_streams__gets_two_and_room_for_other_files_is_left() -> None:
    async with neighbours(giver(Model())) as (giving, asking), trio.open_nursery() as nursery:
        for _ in range(bounds.PIECE_STREAMS_PER_NEIGHBOUR_MAX):
            await nursery.start(_hold, asking, giving)
        with pytest.raises(RefusedError, match=FULL):
            async with stream(asking, giving) as ask:
                await ask(wanted())
        async with stream(asking, giving) as ask:
            with pytest.raises(RefusedError, match="no basis here"):  # asked for, and not there: but not full
                await ask(wanted("0" * 64))
        nursery.cancel_scope.cancel()


async def test_pieces__others_hold_all_places__who_has_none_gets_one_and_they_keep_half_of_theirs() -> None:
    """Four neighbours once held all eight, with a question now and then, and nobody else got anything."""
    async with neighbours(giver(Model())) as (giving, asking), trio.open_nursery() as nursery:
        streams: list[Ask] = []
        for number in range(11, 15):
            other = await start(nursery, network(number, NetworkConfig(bootstrap=giving.addresses)))
            await until(other.connected)
            streams += [await nursery.start(_hold, other, giving) for _ in range(2)]
        async with stream(asking, giving) as ask:
            assert await ask(wanted()) == PIECE
            assert sum([await _is_full(other) for other in streams]) == 1
        nursery.cancel_scope.cancel()


async def _is_full(ask: Ask) -> bool:
    try:
        await ask(wanted())
    except RefusedError as error:
        return FULL in str(error)
    return False


async def _hold(asking: Node, giving: Node, task_status: Any) -> None:
    async with asking.network.neighbour_files.asking(giving.peer) as ask:
        await ask(wanted())
        task_status.started(ask)
        await trio.sleep_forever()


async def test_pieces__more_than_an_observer_may_have__all_come_over_one_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "OBSERVER_BYTES_MAX", 3 * PART_BYTES_MAX)
    pieces = [hashlib.shake_256(bytes([number])).digest(100_000) for number in range(12)]
    model = Model(held={hashlib.sha256(piece).hexdigest(): piece for piece in pieces})
    async with neighbours(giver(model)) as (giving, asking), stream(asking, giving) as ask:
        for sha256, piece in model.held.items():
            assert await ask(wanted(sha256, len(piece))) == piece


# --- those who lie


Answer = Callable[[Channel, FileRequest], Awaitable[None]]


@asynccontextmanager
async def bad_giver(answer: Answer) -> AsyncIterator[tuple[Node, Ask]]:
    """A node that has such a neighbour, and a stream to it."""

    async def hold_session(link: Link) -> None:
        channel = Channel(link, CALM, Traffic())
        await channel.receive_untrusted()
        await channel.send_now(HELLO)
        await read_to_end(link)

    async def serve(link: Link) -> None:
        channel = Channel(link, CALM, Traffic())
        channel.trust()
        try:
            while (received := await channel.receive_untrusted()) is not None:
                assert isinstance(received, FileRequest)
                await answer(channel, received)
        except LinkBrokenError:
            pass

    async with trio.open_nursery() as nursery, running_host(9, hold_session) as host:
        host.serve_beside(FILES_PROTOCOL, serve)
        asking = await start(nursery, network(2, NetworkConfig(bootstrap=(address_of(host),))))
        await until(asking.connected)
        with trio.fail_after(10.0):
            async with asking.network.neighbour_files.asking(host.peer) as ask:
                yield asking, ask
        nursery.cancel_scope.cancel()


def part(data: bytes, request: FileRequest, total: int | None = None) -> FilePart:
    found = data[request.offset : request.offset + PART_BYTES_MAX]
    return FilePart(total=len(data) if total is None else total, offset=request.offset, data=found)


LIE = PIECE[:-1] + bytes([PIECE[-1] ^ 1])


async def test_liar__piece_is_not_what_its_hash_says__is_refused_by_name_and_the_session_ends() -> None:
    async def lie(channel: Channel, request: FileRequest) -> None:
        await channel.send_now(part(LIE, request))

    async with bad_giver(lie) as (asking, ask):
        with pytest.raises(RefusedError, match="message_field: a piece with another hash than was asked for"):
            await ask(wanted())
        await until(asking.disconnected)
        assert asking.network.sessions.discouraged()


@pytest.mark.parametrize("total", [len(PIECE) + 32, len(PIECE) - 32, 2**32 - 1])
async def test_liar__piece_list_of_another_length__is_refused_and_the_session_ends(total: int) -> None:
    async def lie(channel: Channel, request: FileRequest) -> None:
        await channel.send_now(part(PIECE, request, total=total))

    async with bad_giver(lie) as (asking, ask):
        with pytest.raises(RefusedError, match="message_field: piece part 0/"):
            await ask(wanted())
        await until(asking.disconnected)


async def test_liar__sends_parts_that_nobody_asked_for__is_refused_and_the_session_ends() -> None:
    async def flood(channel: Channel, request: FileRequest) -> None:
        for _ in range(3):
            await channel.send_now(part(PIECE, request))

    async with bad_giver(flood) as (asking, ask):
        with pytest.raises(RefusedError, match="message_field: piece part"):
            await ask(wanted())
        await until(asking.disconnected)


async def test_liar__sends_a_piece_within_its_session__is_cut() -> None:
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as liar:
        node = await start(nursery, network(1))
        link = await dial(liar, node)
        await link.send_all(frame(encode(HELLO)))
        await until(node.connected)
        await link.send_all(frame(encode(FilePart(total=len(PIECE), offset=0, data=PIECE[:PART_BYTES_MAX]))))
        await until(node.disconnected)
        assert "FilePart between neighbours" in node.disconnected()[0].reason
        nursery.cancel_scope.cancel()
