"""Frames on a byte stream: u32 big-endian length, then the payload. Bytes in, payloads out; no sockets here."""

from __future__ import annotations

from protocol.errors import Reject, RejectReason
from sfnode.network.bounds import LENGTH_PREFIX_BYTES


def frame(payload: bytes) -> bytes:
    """One payload as it goes on the wire."""
    return len(payload).to_bytes(LENGTH_PREFIX_BYTES, "big") + payload


class FrameParser:
    """Cuts received bytes into payloads. Holds at most one unfinished frame."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max  # may be raised once the peer has said who it is
        self._buffer = bytearray()

    def feed_untrusted(self, data: bytes) -> None:
        """Append bytes from the peer."""
        self._buffer += data

    def next_payload(self) -> bytes | None:
        """The next complete payload, None when more bytes are needed; Reject for a length that no honest node sends."""
        if len(self._buffer) < LENGTH_PREFIX_BYTES:
            return None
        length = int.from_bytes(self._buffer[:LENGTH_PREFIX_BYTES], "big")
        if not 0 < length <= self.frame_bytes_max:
            raise Reject(RejectReason.FRAME, f"frame of {length} bytes, allowed 1 to {self.frame_bytes_max}")
        end = LENGTH_PREFIX_BYTES + length
        if len(self._buffer) < end:
            return None
        payload = bytes(self._buffer[LENGTH_PREFIX_BYTES:end])
        del self._buffer[:end]
        return payload
