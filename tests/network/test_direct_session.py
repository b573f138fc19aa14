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
        streams={STREAM: SimpleNamespace(recv_window=1_000)},
        stream_buffers={STREAM: bytearray()},
        stream_events={STREAM: trio.Event()},
    )
    raw = SimpleNamespace(stream=SimpleNamespace(stream=own))
    noise = SimpleNamespace(noise_state=PlainNoise(), read_writer=SimpleNamespace(read_write_closer=raw))
    return DirectSession(muxed, SimpleNamespace(conn=noise, _drain=lambda _count: first)), muxed, peer


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
