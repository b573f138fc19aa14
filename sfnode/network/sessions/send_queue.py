"""The frames that wait to be written to one neighbour: bounded, and joined into as few writes as possible."""

from collections import deque

import trio

from protocol.framing import frame
from protocol.limits import FRAME_BYTES_MAX
from sfnode.network.bounds import SEND_QUEUE_BYTES_MAX, WRITE_BYTES_MAX


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
        if self._is_closed or self._bytes + len(payload) > SEND_QUEUE_BYTES_MAX:
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

    @property
    def is_empty(self) -> bool:
        return not self._frames

    async def take(self) -> tuple[bytes, int] | None:
        """Wait for frames; return them joined up to WRITE_BYTES_MAX, with their number, or None after the last."""
        while not self._frames:
            if self._is_closed:
                return None
            self._changed = trio.Event()
            await self._changed.wait()
        joined = [self._frames.popleft()]
        size = len(joined[0])
        while self._frames and size + len(self._frames[0]) <= WRITE_BYTES_MAX:
            joined.append(self._frames.popleft())
            size += len(joined[-1])
        self._bytes -= size
        return b"".join(joined), len(joined)
