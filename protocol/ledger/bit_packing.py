"""Small whole numbers in 2, 4 or 8 bits each, as a dense message holds them (SPEC 6.1). The one place that packs them.

Two's complement, in order, the high bits of a byte first. What is left of the last byte is zero; the reader checks it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def packed_bytes(count: int, bits: int) -> int:
    """Return the bytes that ``count`` numbers of ``bits`` bits take."""
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
    octets = np.frombuffer(data, dtype=np.uint8)
    at_the_top = octets[:, None] << np.arange(0, 8, bits, dtype=np.uint8)
    return (at_the_top.view(np.int8) >> 8 - bits).ravel()
