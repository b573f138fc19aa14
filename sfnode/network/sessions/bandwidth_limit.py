"""What a node sends and receives: the count of bytes, and the limit on bytes a second (--max-upload)."""

import trio

from protocol.limits import PART_BYTES_MAX
from sfnode.network.policy import TokenBucket

_BURST_BYTES = 8 * PART_BYTES_MAX  # the bytes in flight of one stream: a short file is never delayed


class Pace:
    """Limits all that share it to ``bytes_per_s`` together; 0 means no limit."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._bucket = TokenBucket(_BURST_BYTES, 0.0)

    async def wait(self, size: int) -> float:
        """Wait until ``size`` bytes may flow; return the seconds waited. Cancelled: they do not flow, nor count."""
        wait_s = self.book(size)
        try:
            if wait_s > 0:
                await trio.sleep(wait_s)
        except trio.Cancelled:
            self.book(-size)
            raise
        return wait_s

    def book(self, size: int) -> float:
        """Count ``size`` bytes; return the seconds to wait with what may wait."""
        rate_per_s = self._bytes_per_s
        return self._bucket.take(size, rate_per_s, trio.current_time()) if rate_per_s else 0.0


class Traffic:
    """Counts bytes and frames of the wire protocol (payload and length prefix), without Noise, yamux and TCP."""

    def __init__(self, upload_bytes_per_s: float = 0.0) -> None:
        """``upload_bytes_per_s``: limit of the upload; 0: none."""
        self.bytes_in = self.bytes_out = self.frames_in = self.frames_out = 0
        self.pace = Pace(upload_bytes_per_s)
        self.file_pace = Pace(upload_bytes_per_s / 2)  # so that files never delay a hello or an update
