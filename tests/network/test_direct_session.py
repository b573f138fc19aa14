"""The short way from socket to stream: what takes it, and what still takes the library's way."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.stream_muxer.yamux import yamux

from sfnode.network import bounds
from sfnode.network.transport.direct_session import DirectSession

STREAM = 3


class PlainNoise:
    """A cipher that only adds a tag of 16 bytes."""

    def encrypt(self, data: bytes) -> bytes:
        return data + bytes(16)

    def decrypt(self, data: bytes) -> bytes:
        return data[:-16]


def session(first: bytes = b"") -> tuple[DirectSession, Any, trio.testing.MemorySendStream]:
    """A session with one open stream, what it feeds, and where the peer writes."""
    peer, own = trio.testing.memory_stream_one_way_pair()
    muxed = SimpleNamespace(
        is_stranger=False,
        streams={STREAM: SimpleNamespace(recv_window=1_000, send_window=5)},
        stream_buffers={STREAM: bytearray()},
        stream_events={STREAM: trio.Event()},
    )
    raw = SimpleNamespace(stream=SimpleNamespace(stream=own))
    noise = SimpleNamespace(noise_state=PlainNoise(), read_writer=SimpleNamespace(read_write_closer=raw))
    return DirectSession(muxed, SimpleNamespace(conn=noise, _drain=lambda _count: first)), muxed, peer


def update(increment: int) -> bytes:
    return struct.pack(yamux.YAMUX_HEADER_FORMAT, 0, yamux.TYPE_WINDOW_UPDATE, 0, STREAM, increment)


def frame(body: bytes, *, kind: int = yamux.TYPE_DATA, flags: int = 0, stream: int = STREAM) -> bytes:
    return struct.pack(yamux.YAMUX_HEADER_FORMAT, 0, kind, flags, stream, len(body)) + body


def message(plain: bytes) -> bytes:
    return (len(plain) + 16).to_bytes(2, "big") + plain + bytes(16)


async def test_read__plain_data_frames__go_into_their_stream_and_not_to_the_library() -> None:
    direct, muxed, peer = session()
    ping = frame(b"", kind=yamux.TYPE_PING)
    await peer.send_all(message(frame(b"ab") + frame(b"cd")) + message(frame(b"e")) + message(ping))
    assert await direct.read(yamux.HEADER_SIZE) == ping
    assert muxed.stream_buffers[STREAM] == b"abcde"
    assert muxed.streams[STREAM].recv_window == 995
    assert muxed.stream_events[STREAM].is_set()


@pytest.mark.parametrize(
    "odd",
    [frame(b"abc", flags=yamux.FLAG_FIN), frame(b"abc", flags=yamux.FLAG_SYN, stream=5), frame(b"abc", stream=7)],
    ids=["last of its stream", "first of its stream", "unknown stream"],
)
async def test_read__other_data_frame__goes_to_the_library_with_its_body(odd: bytes) -> None:
    direct, muxed, peer = session()
    await peer.send_all(message(odd + frame(b"later")) + message(frame(b"", kind=yamux.TYPE_PING)))
    assert await direct.read(yamux.HEADER_SIZE) + await direct.read(3) == odd
    assert muxed.stream_buffers[STREAM] == b""
    await direct.read(yamux.HEADER_SIZE)
    assert muxed.stream_buffers[STREAM] == b"later"


async def test_read__frame_in_two_messages__goes_to_the_library_which_has_a_deadline_for_the_rest() -> None:
    direct, muxed, peer = session()
    whole = frame(b"abcdef")
    await peer.send_all(message(whole[:-4]))
    assert await direct.read(yamux.HEADER_SIZE) == whole[: yamux.HEADER_SIZE]
    assert await direct.read(6) == b"ab"
    await peer.send_all(message(whole[-4:] + frame(b"x")) + message(frame(b"", kind=yamux.TYPE_PING)))
    assert await direct.read(4) == b"cdef"
    await direct.read(yamux.HEADER_SIZE)
    assert muxed.stream_buffers[STREAM] == b"x"


async def test_read__peer_sends_more_than_its_window__window_does_not_fall_below_zero() -> None:
    direct, muxed, peer = session(first=frame(bytes(1_001)))
    await peer.send_all(message(frame(b"", kind=yamux.TYPE_PING)))
    await direct.read(yamux.HEADER_SIZE)
    assert (muxed.streams[STREAM].recv_window, len(muxed.stream_buffers[STREAM])) == (0, 1_001)


async def test_read__peer_closes_within_a_message__connection_closed_error() -> None:
    direct, _, peer = session()
    await peer.send_all(message(frame(b"abc"))[:-1])
    await peer.aclose()
    with pytest.raises(ConnectionClosedError, match="closed by the peer"):
        await direct.read(yamux.HEADER_SIZE)


async def test_read__plain_window_update__opens_the_window_and_does_not_go_to_the_library() -> None:
    direct, muxed, peer = session()
    ping = frame(b"", kind=yamux.TYPE_PING)
    await peer.send_all(message(update(7) + frame(b"ab") + update(1)) + message(ping))
    assert await direct.read(yamux.HEADER_SIZE) == ping
    assert (muxed.streams[STREAM].send_window, muxed.stream_buffers[STREAM]) == (13, b"ab")


async def test_read__empty_data_frame__wakes_nobody() -> None:
    direct, muxed, peer = session()
    await peer.send_all(message(frame(b"")) + message(frame(b"", kind=yamux.TYPE_PING)))
    await direct.read(yamux.HEADER_SIZE)
    assert not muxed.stream_events[STREAM].is_set()


@pytest.mark.parametrize(
    ("cheap", "cost"),
    [
        (message(b""), 1.0),
        (message(frame(b"")), 2.0),
        (message(update(1)), 2.0),
        (message(frame(b"x")), 2.0),
        (message(frame(b"", kind=yamux.TYPE_PING, flags=yamux.FLAG_ACK)), 1.0 + bounds.CONTROL_FRAME_COST),
        (message(frame(bytes(50_000), stream=7)), 601.0),
        (message(frame(bytes(50_000), flags=yamux.FLAG_SYN)), 601.0),
    ],
    ids=["empty message", "empty frame", "window update", "one byte", "control frame", "no such stream", "again"],
)
@pytest.mark.parametrize("is_stranger", [True, False])
async def test_read__frames_that_say_nothing__are_read_no_faster_than_they_may_be(
    cheap: bytes, cost: float, is_stranger: bool, autojump_clock: trio.testing.MockClock
) -> None:
    direct, muxed, peer = session()
    muxed.is_stranger = is_stranger
    rate_per_s = bounds.STRANGER_FRAMES_PER_S if is_stranger else bounds.FRAMES_PER_S
    count = int(3 * bounds.FRAMES_BURST / cost)
    await peer.send_all(cheap * count)
    await peer.aclose()
    with pytest.raises(ConnectionClosedError):
        await read_all(direct)
    least_s = (count * cost - bounds.FRAMES_BURST - bounds.SMALL_READ_COST) / rate_per_s
    assert trio.current_time() >= 0.99 * least_s
    assert trio.current_time() <= 1.5 * least_s


async def test_read__header_announces_4_gib_for_no_stream__costs_no_wait_before_any_of_it_comes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The reader slept for an hour, and held a place of the connections although the peer had gone."""
    direct, _, peer = session()
    await peer.send_all(message(struct.pack(yamux.YAMUX_HEADER_FORMAT, 0, yamux.TYPE_DATA, 0, 7, 0xFFFFFFFF)))
    await direct.read(yamux.HEADER_SIZE)
    assert trio.current_time() < 1.0


async def read_all(direct: DirectSession) -> None:
    while True:
        await direct.read(yamux.HEADER_SIZE)


async def test_read__little_at_a_time__is_read_less_often(autojump_clock: trio.testing.MockClock) -> None:
    """A peer that writes a byte 5,000 times a second: what comes while it has to wait is read at once."""
    direct, muxed, peer = session()
    receive_some, reads, seconds = direct._stream.receive_some, 0, 1.0

    async def counted(bytes_max: int) -> bytes:
        nonlocal reads
        reads += 1
        return bytes(await receive_some(bytes_max))

    vars(direct._stream)["receive_some"] = counted
    async with trio.open_nursery() as nursery:
        nursery.start_soon(direct.read, yamux.HEADER_SIZE)
        for _ in range(int(5_000 * seconds)):
            await peer.send_all(message(frame(b"x")))
            await trio.sleep(1 / 5_000)
        await trio.sleep(0.1)
        assert len(muxed.stream_buffers[STREAM]) == 5_000 * seconds
        nursery.cancel_scope.cancel()
    assert reads <= (bounds.FRAMES_BURST + seconds * bounds.FRAMES_PER_S) / bounds.SMALL_READ_COST + 1
