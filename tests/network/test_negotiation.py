"""Negotiations of streams: no line without a bound, and none that fails leaves a stream behind."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from libp2p.host.ping import ID as PING
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator

from sfnode.network import bounds
from sfnode.network.transport.libp2p_patches import LineTooLongError, patch_library
from tests.support.network_nodes import address_of, check_echo, connections, running_host, until

HEADER = b"\x13/multistream/1.0.0\n"


def varint(number: int) -> bytes:
    """LEB128, as libp2p writes lengths."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


class Wire:
    """Gives zeros without end after a beginning, and counts what is taken of them."""

    def __init__(self, beginning: bytes) -> None:
        self._beginning = bytearray(beginning)
        self.zeros = 0

    async def read(self, n: int) -> bytes:
        taken = bytes(self._beginning[:n])
        del self._beginning[:n]
        self.zeros += n - len(taken)
        return taken + bytes(n - len(taken))


@pytest.mark.parametrize("size", [bounds.NEGOTIATION_LINE_BYTES_MAX + 1, 1 << 20, (1 << 63) - 1])
async def test_line__longer_than_any_honest_one__is_refused_before_it_is_read(size: int) -> None:
    patch_library()
    wire: Any = Wire(varint(size))
    with pytest.raises(LineTooLongError):
        await MultiselectCommunicator(wire).read()
    assert wire.zeros == 0


async def test_line__as_long_as_it_may_be__is_read() -> None:
    patch_library()
    line = b"x" * (bounds.NEGOTIATION_LINE_BYTES_MAX - 1)
    wire: Any = Wire(varint(len(line) + 1) + line + b"\n")
    assert await MultiselectCommunicator(wire).read() == line.decode()


async def test_stranger__announces_a_line_of_a_megabyte__its_stream_ends_and_the_host_goes_on() -> None:
    async with running_host(1) as victim, running_host(2, is_listening=False) as attacker:
        await attacker.dial(address_of(victim))
        stream = await connections(attacker)[0].open_stream()
        await stream.write(HEADER + varint(1 << 20) + bytes(1_000))
        await until(lambda: victim.guard.failures == 1)
        await check_echo(attacker, victim)


async def test_open_beside__neighbour_announces_a_line_of_a_megabyte__is_held_against_it() -> None:
    async def answer(stream: Any) -> None:
        await stream.write(HEADER + varint(1 << 20) + bytes(1_000))

    async with running_host(1) as node, running_host(2) as neighbour:
        link = await node.dial(address_of(neighbour))
        held: list[str] = []
        node.on_garbage = lambda peer, _reason: held.append(peer)
        neighbour._swarm.set_stream_handler(answer)
        assert await node.open_beside(link, PING) is None
        assert held == [neighbour.peer]


async def test_open_beside__negotiations_that_fail__leave_no_stream_behind() -> None:
    """A connection has 256 places for streams of ours, and each failed negotiation kept one."""

    async def refuse(stream: Any) -> None:
        await stream.write(HEADER + b"\x03na\n")

    async with running_host(1) as node, running_host(2) as neighbour:
        link = await node.dial(address_of(neighbour))
        muxed = connections(node)[0]
        before, places = set(muxed.streams), muxed.stream_backlog_semaphore.value
        neighbour._swarm.set_stream_handler(refuse)
        for _ in range(3):
            assert await node.open_beside(link, PING) is None
        assert (set(muxed.streams), muxed.stream_backlog_semaphore.value) == (before, places)
        assert len(node._swarm.get_connections()[0].streams) <= 1


async def test_open_stream__cancelled_before_its_turn__leaves_nothing_behind() -> None:
    async with running_host(1) as node, running_host(2) as neighbour:
        await node.dial(address_of(neighbour))
        muxed = connections(node)[0]
        before, places = set(muxed.streams), muxed.stream_backlog_semaphore.value
        async with muxed._write_lock, trio.open_nursery() as nursery:
            nursery.start_soon(muxed.open_stream)
            await until(lambda: set(muxed.streams) != before)
            nursery.cancel_scope.cancel()
        assert (set(muxed.streams), muxed.stream_backlog_semaphore.value) == (before, places)
        assert not muxed.is_closed


async def test_reset__unread_bytes_and_a_reader_that_waits__both_are_let_go() -> None:
    async def send_much(stream: Any) -> None:
        await stream.write(bytes(10_000))
        await trio.sleep_forever()

    async with running_host(1) as node, running_host(2) as neighbour:
        await node.dial(address_of(neighbour))
        neighbour._swarm.set_stream_handler(send_much)
        muxed = connections(node)[0]
        before = set(muxed.streams)
        stream = await muxed.open_stream()
        await until(lambda: len(muxed.stream_buffers[stream.stream_id]) == 10_000)
        await stream.reset()
        assert set(muxed.streams) == before


async def test_ask_reach__answered__its_stream_is_given_back() -> None:
    async with running_host(1) as node, running_host(2) as neighbour:
        link = await node.dial(address_of(neighbour))
        before = set(connections(node)[0].streams)
        assert await node.ask_reach(link, 0) is not None
        assert set(connections(node)[0].streams) == before
