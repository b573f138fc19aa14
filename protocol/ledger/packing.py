"""Small whole numbers in 2, 4 or 8 bits each, as a dense message holds them (SPEC 6.1). The one place that packs them.

Two's complement, in order, the high bits of a byte first. What is left of the last byte is zero; the reader checks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray


def packed_bytes(count: int, bits: int) -> int:
    """Return how many bytes ``count`` numbers of so many bits take."""
    return -(-count * bits // 8)


def pack_numbers(numbers: Sequence[int], bits: int) -> bytes:
    """Pack numbers that ``bits`` bits hold, and fill the last byte with zeros."""
    values, each = np.array(numbers, dtype=np.int16), 8 // bits
    assert np.all((values >= -(1 << bits - 1)) & (values < 1 << bits - 1)), "a number has too many bits"
    room = np.zeros(packed_bytes(len(values), bits) * each, dtype=np.int16)
    room[: len(values)] = values & (1 << bits) - 1
    octets = room.reshape(-1, each) << np.arange(8 - bits, -1, -bits)
    return bytes(octets.sum(axis=1).astype(np.uint8))


def unpack_numbers(data: bytes, bits: int) -> NDArray[np.int8]:
    """Return all numbers that the bytes have room for, int8: those behind the last one of a message are its filling."""
    return _IN_A_BYTE[bits][np.frombuffer(data, dtype=np.uint8)].view(np.int8)


def _in_a_byte(bits: int) -> NDArray[np.unsignedinteger]:
    """Return the numbers in each value of a byte, 8 / bits of them as one integer: one look-up unpacks a byte."""
    highest = np.arange(256, dtype=np.uint8)[:, None] << np.arange(0, 8, bits, dtype=np.uint8)
    signed = highest.astype(np.uint8).view(np.int8) >> 8 - bits
    return np.ascontiguousarray(signed).view(f"u{8 // bits}").ravel()


_IN_A_BYTE: Final = {bits: _in_a_byte(bits) for bits in (2, 4, 8)}
