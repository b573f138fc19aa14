"""Philox4x32-10, the counter-based generator behind all shared randomness (Salmon et al., SC 2011; Random123).

Integer arithmetic in NumPy on the CPU gives the same words on every machine, for any device or release of torch.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

ROUNDS = 10
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
# What each round adds to the two words of the key.
_WEYL = [np.arange(ROUNDS, dtype=np.uint64) * np.uint64(step) for step in (0x9E3779B9, 0xBB67AE85)]
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def philox4x32(counter: tuple[Words, Words, Words, Words], key: tuple[Words, Words]) -> Words:
    """Return one block of four words for each counter, uint32 of the broadcast shape + (4,).

    Counters and keys are arrays that broadcast together, the least significant word of each first.
    """
    shape = np.broadcast_shapes(*(word.shape for word in (*counter, *key)))
    # In place, and in order "C" because broadcast words would keep odd strides: together this halves the time.
    x0, x1, x2, x3 = (np.broadcast_to(word, shape).astype(np.uint64, order="C") for word in counter)
    keys = (np.add.outer(weyl, word.astype(np.uint64)) & _LOW for weyl, word in zip(_WEYL, key, strict=True))
    product_0, product_1 = np.empty_like(x0), np.empty_like(x2)
    for k0, k1 in zip(*keys, strict=True):
        np.multiply(x0, _MULTIPLIER_0, out=product_0)
        np.multiply(x2, _MULTIPLIER_1, out=product_1)
        # The high half of each product goes into the other pair, with the key; the low halves become words 1 and 3.
        np.right_shift(product_1, _SHIFT, out=x0)
        np.right_shift(product_0, _SHIFT, out=x2)
        x0 ^= x1
        x2 ^= x3
        x0 ^= k0
        x2 ^= k1
        np.bitwise_and(product_1, _LOW, out=x1)
        np.bitwise_and(product_0, _LOW, out=x3)
    return np.stack([x0, x1, x2, x3], axis=-1).astype(np.uint32)


def split_key(keys: NDArray[np.uint64]) -> tuple[Words, Words]:
    """Split 64-bit keys into (low words, high words)."""
    return (keys & _LOW).astype(np.uint32), (keys >> _SHIFT).astype(np.uint32)


def blocks(keys: Sequence[int], directions: Words, count: int, stream: int) -> Words:
    """Return the first ``count`` blocks of each direction under each 64-bit key: uint32[keys, directions, count, 4].

    Block ``i`` of direction ``d`` has the counter (i, d, 0, stream).
    """
    key = split_key(np.array(keys, dtype=np.uint64)[:, None, None])
    block, zero = np.arange(count, dtype=np.uint32), np.zeros(1, dtype=np.uint32)
    return philox4x32((block, directions[:, None], zero, zero + np.uint32(stream)), key)


def words(key: int, count: int, stream: int = 0) -> Words:
    """Return the first ``count`` words of stream ``stream`` under a 64-bit ``key``: uint32[count] (SPEC 3.2)."""
    return blocks([key], np.zeros(1, dtype=np.uint32), -(-count // 4), stream).reshape(-1)[:count]


def signs_of_words(source: Words, count: int) -> NDArray[np.int8]:
    """Return the first ``count`` bits of uint32[..., n] as int8[..., count], lowest bit first: 0 to +1, 1 to -1."""
    octets = np.ascontiguousarray(source, dtype="<u4").view(np.uint8)
    bits = np.unpackbits(octets, axis=-1, count=count, bitorder="little")
    return np.int8(1) - np.int8(2) * bits.astype(np.int8)


def signs(key: int, count: int, stream: int) -> NDArray[np.int8]:
    """Return ``count`` independent signs +-1 under ``key``: int8[count] (SPEC 3.3)."""
    return signs_of_words(words(key, -(-count // 32), stream), count)
