"""Messages over one link: frames, codec, and the deadline of a write."""

import time

import trio

from protocol.framing import LENGTH_BYTES, FrameParser, frame
from protocol.limits import FRAME_BYTES_MAX
from protocol.wire import Message, decode_untrusted, encode
from sfnode.network import bounds
from sfnode.network.network_config import Timings
from sfnode.network.sessions.bandwidth_limit import Traffic
from sfnode.network.transport import Link, LinkBrokenError


class StalledError(LinkBrokenError):
    """The peer did not read for WRITE_S, and its connection was cut."""


class Channel:
    """Sends and receives messages on one link. The frame bound is small, for strangers, until ``trust`` raises it."""

    def __init__(self, link: Link, timings: Timings, total: Traffic) -> None:
        self.link, self.peer = link, link.peer
        self.timings = timings
        self.traffic = Traffic()
        self._total, self.file_pace = total, total.file_pace  # of the whole network
        self.message_bytes = 0  # of the last message, on the wire
        self.decoding_s = 0.0  # of the last message: the thread's own time, so that a busy machine charges nobody
        self._parser = FrameParser(bounds.HELLO_FRAME_BYTES_MAX)

    def trust(self) -> None:
        """Accept frames of full size, once the peer has said hello."""
        self._parser.frame_bytes_max = FRAME_BYTES_MAX

    async def receive_untrusted(self) -> Message | None:
        """Return the next message; None at the end of the stream. Reject, LinkBrokenError."""
        while (payload := self._parser.next_payload()) is None:
            data = await self.link.receive_some(bounds.READ_BYTES_MAX)
            if not data:
                return None
            self._parser.feed_untrusted(data)
        self.message_bytes = len(payload) + LENGTH_BYTES
        for traffic in (self.traffic, self._total):
            traffic.bytes_in += self.message_bytes
            traffic.frames_in += 1
        started_s = time.thread_time()
        message = decode_untrusted(payload)
        self.decoding_s = time.thread_time() - started_s
        return message

    async def send_now(self, *messages: Message) -> None:
        """Write messages at once. Do not call it during a session, whose send queue is the only writer.

        They do not wait for the flood's turn (--max-upload): a peer waits only so long for a hello, or for a part of a
        file, which has waited for its own pace.
        """
        data = b"".join(frame(encode(message)) for message in messages)
        self._total.pace.book(len(data))
        await self._write(data, len(messages))

    async def write(self, data: bytes, frames: int) -> None:
        """Write joined frames when it is their turn. LinkBrokenError; StalledError after WRITE_S, the link is cut."""
        await self._total.pace.wait(len(data))
        await self._write(data, frames)

    async def _write(self, data: bytes, frames: int) -> None:
        with trio.move_on_after(self.timings.write_s) as scope:
            await self.link.send_all(data)
        if scope.cancelled_caught:
            self.link.abort()
            raise StalledError(f"the peer has not read for {self.timings.write_s:g} s")
        for traffic in (self.traffic, self._total):
            traffic.bytes_out += len(data)
            traffic.frames_out += frames
