"""Frames on a byte stream: u32 big-endian length, then the payload. Bytes in, payloads out; no sockets here.

Sessions between peers (SPEC 8) and the training worker's socket both use these frames, each with its own bound.
"""

from protocol.errors import Reject, RejectReason

LENGTH_BYTES = 4


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(LENGTH_BYTES, "big") + payload


class FrameParser:
    """Cuts received bytes into payloads."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max  # may be raised once the other side has identified itself
        self._buffer = bytearray()

    def feed_untrusted(self, data: bytes) -> None:
        self._buffer += data

    def next_payload(self) -> bytes | None:
        """Return the next complete payload, None when more bytes are needed. Raises Reject for a bad length."""
        if len(self._buffer) < LENGTH_BYTES:
            return None
        length = int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
        if not 0 < length <= self.frame_bytes_max:
            raise Reject(RejectReason.FRAME, f"frame of {length} bytes, allowed 1 to {self.frame_bytes_max}")
        end = LENGTH_BYTES + length
        if len(self._buffer) < end:
            return None
        payload = bytes(self._buffer[LENGTH_BYTES:end])
        del self._buffer[:end]
        return payload
