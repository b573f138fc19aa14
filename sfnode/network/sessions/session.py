"""One running session with a neighbour, after both have said hello: reader, send queue, writer, its end."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable

import trio

from protocol.errors import Reject, RejectReason
from protocol.framing import frame
from protocol.limits import FRAME_BYTES_MAX
from protocol.wire import Bye, Hello, Message, Ping, Pong, encode
from sfnode.event_log import log
from sfnode.network import bounds
from sfnode.network.policy import Fault, TokenBucket, rate_limits
from sfnode.network.sessions.channel import Channel, StalledError
from sfnode.network.sessions.heartbeat import Heartbeat
from sfnode.network.transport import LinkBrokenError


class SendQueue:
    """Queues frames for one writer task. ``put`` never waits; the writer waits in ``take``."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._is_closed = False
        self._changed = trio.Event()

    def put(self, payload: bytes) -> bool:
        """Queue one payload; return False if there is no room, or if the last one is queued already."""
        assert len(payload) <= FRAME_BYTES_MAX, "a message that no peer would accept"
        if self._is_closed or self._bytes + len(payload) > bounds.SEND_QUEUE_BYTES_MAX:
            return False
        self._append(frame(payload))
        return True

    def put_last(self, payload: bytes) -> None:
        """Queue a payload beyond the bound, after which nothing more is accepted."""
        if not self._is_closed:
            self._append(frame(payload))
            self._is_closed = True

    def _append(self, framed: bytes) -> None:
        self._frames.append(framed)
        self._bytes += len(framed)
        self._changed.set()

    async def take(self) -> tuple[bytes, int] | None:
        """Wait for frames; return them joined up to WRITE_BYTES_MAX, with their number, or None after the last."""
        while not self._frames:
            if self._is_closed:
                return None
            self._changed = trio.Event()
            await self._changed.wait()
        joined = [self._frames.popleft()]
        size = len(joined[0])
        while self._frames and size + len(self._frames[0]) <= bounds.WRITE_BYTES_MAX:
            joined.append(self._frames.popleft())
            size += len(joined[-1])
        self._bytes -= size
        return b"".join(joined), len(joined)


MessageHandler = Callable[["Session", Message], Awaitable[None]]


class Session:
    """Runs one session with a neighbour. ``run`` lasts as long as the session and never raises for the peer's acts."""

    def __init__(self, channel: Channel, hello: Hello, on_message: MessageHandler) -> None:
        self.channel, self.peer, self.is_outbound = channel, channel.peer, channel.link.is_outbound
        self.hello = hello
        self.finished = trio.Event()  # set by the owner once the session has been cleaned up
        self.started_s = trio.current_time()
        self.heartbeat = Heartbeat(channel.timings)
        self.asked = rate_limits.Asked()
        self.news = 0  # number of records that this neighbour was the first to bring
        self.handled = trio.Event()  # set once the node has handled the last question that it got
        self._on_message = on_message
        self._send_queue = SendQueue()
        self._scope = trio.CancelScope()
        self._end: tuple[str, Fault | None] | None = None  # why it ends, and what the peer is penalised for
        self._allowance = TokenBucket(bounds.RECEIVE_BURST_BYTES, self.started_s)

    @property
    def is_ending(self) -> bool:
        return self._end is not None

    def send(self, message: Message) -> bool:
        """Queue a message; return False if the queue is full or the session is ending."""
        self.asked.sent(message)
        return self._send_queue.put(encode(message))

    def end(self, reason: str, *, fault: Fault | None = None) -> None:
        """End the session without a bye. Keep the first reason given."""
        if self._end is None:
            self._end = reason, fault
        self._scope.cancel()

    def say_bye(self, reason: str) -> None:
        """Send the queued messages, then Bye with the reason; end once the peer has read it, at most BYE_S later."""
        if self._end is None:
            self._end = reason, None
        self._send_queue.put_last(encode(Bye(reason=reason)))
        self._scope.deadline = min(self._scope.deadline, trio.current_time() + self.channel.timings.bye_s)

    async def run(self) -> tuple[str, Fault | None]:
        """Run until either side ends the session; return why it ended, and the fault that the peer is penalised for.

        The caller closes the link afterwards.
        """
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_all)
                nursery.start_soon(self.heartbeat.run, self.send, self.end)
                await self._read_all()
        return self._end or ("stopped", None)

    async def _read_all(self) -> None:
        try:
            while (message := await self.channel.receive_untrusted()) is not None:
                self.heartbeat.heard()
                decoding_cost_bytes = rate_limits.time_cost_bytes(self.channel.decoding_s)
                await self.stay_within_rate(
                    max(self.channel.message_bytes + bounds.FRAME_COST_BYTES, decoding_cost_bytes)
                )
                await self._receive(message)
            self.end("the peer closed the connection")
        except LinkBrokenError as error:
            self.end(str(error))
        except Reject as error:
            log(logging.WARNING, "peer_rejected", peer=self.peer, reason=str(error))
            self.end(str(error), fault=Fault.GARBAGE)

    async def _receive(self, message: Message) -> None:
        match message:
            case Ping(nonce=nonce):
                self.send(Pong(nonce=nonce))
            case Pong():
                self.heartbeat.answered(message)
            case Bye(reason=reason):
                self.end(f"the peer said bye: {reason}")
            case Hello():
                # [REJECT] SPEC 8: hello is said once
                raise Reject(RejectReason.UNREQUESTED, "a second hello")
            case _:
                # Without a deadline: while the session does not read, this peer feels back-pressure.
                with self.heartbeat.delivering():
                    await self._on_message(self, message)

    def owe(self, cost_bytes: float) -> float:
        """Charge the peer a cost; return the seconds in which it earns that. It is read again after them."""
        return self._allowance.take(cost_bytes, bounds.RECEIVE_BYTES_PER_S, trio.current_time())

    async def stay_within_rate(self, cost_bytes: float) -> None:
        """Charge the peer ``cost_bytes``, and wait while it is over its rate."""
        wait_s = self.owe(cost_bytes)
        if wait_s > 0:
            await trio.sleep(wait_s)

    async def _write_all(self) -> None:
        try:
            while (batch := await self._send_queue.take()) is not None:
                await self.channel.write(*batch)
            await self.channel.link.send_eof()
        except LinkBrokenError as error:
            self.end(str(error), fault=Fault.STALLED if isinstance(error, StalledError) else None)
