"""Arithmetic on edwards25519 in plain integers, slow and obvious: it builds the signatures no honest signer makes, and
states the rules of SPEC 2.3 a second time, independently of the library that the protocol uses."""

from __future__ import annotations

from functools import cache
from hashlib import sha512
from itertools import count
from typing import TypeAlias

Point: TypeAlias = tuple[int, int]

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, P) % P
_ROOT_OF_MINUS_1 = pow(2, (P - 1) // 4, P)
IDENTITY: Point = (0, 1)
_MIXED_SECRET = 99  # any scalar does


def add(first: Point, second: Point) -> Point:
    """Sum of two points; complete, also for equal ones."""
    (x1, y1), (x2, y2) = first, second
    product = _D * x1 * x2 * y1 * y2 % P
    x3 = (x1 * y2 + x2 * y1) * pow(1 + product, -1, P) % P
    return x3, (y1 * y2 + x1 * x2) * pow(1 - product, -1, P) % P


def negative(point: Point) -> Point:
    """The inverse point."""
    return -point[0] % P, point[1]


def multiply(times: int, point: Point) -> Point:
    """``times`` x ``point``, ``times`` not negative."""
    result = IDENTITY
    while times:
        if times & 1:
            result = add(result, point)
        point = add(point, point)
        times >>= 1
    return result


def x_of(y: int, sign: int) -> int | None:
    """The x of the point with this y whose lowest bit is ``sign``; None when y is on no point of the curve."""
    square = (y * y - 1) * pow(_D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * _ROOT_OF_MINUS_1 % P
    if (x * x - square) % P:
        return None
    return x if x % 2 == sign or x == 0 else P - x


def encode(point: Point) -> bytes:
    """The canonical 32 bytes."""
    return encode_raw(point[1], point[0] & 1)


def encode_raw(y: int, sign: int) -> bytes:
    """255 bits of ``y``, which may be p or more, and the sign bit."""
    return (y | sign << 255).to_bytes(32, "little")


def decode(data: bytes) -> Point | None:
    """The point of a canonical encoding, else None."""
    number = int.from_bytes(data, "little")
    y, sign = number & (1 << 255) - 1, number >> 255
    x = x_of(y, sign) if len(data) == 32 and y < P else None
    return (x, y) if x is not None and x & 1 == sign else None


BASE: Point = (x_of(4 * pow(5, -1, P) % P, 0) or 0, 4 * pow(5, -1, P) % P)


@cache
def torsion() -> tuple[Point, ...]:
    """The eight points of small order: t, 2 t, ... 8 t = identity, for a t of order 8."""
    y = 2
    while True:
        x = x_of(y, 0)
        generator = multiply(L, (x, y)) if x is not None else IDENTITY
        if multiply(4, generator) != IDENTITY:
            return tuple(multiply(times, generator) for times in range(1, 9))
        y += 1


def order_of_torsion(point: Point) -> int:
    """Order of a point of small order."""
    return next(order for order in (1, 2, 4, 8) if multiply(order, point) == IDENTITY)


def challenge(r: bytes, key: bytes, message: bytes) -> int:
    """h of a signature, modulo L."""
    return int.from_bytes(sha512(r + key + message).digest(), "little") % L


def scalar_bytes(scalar: int) -> bytes:
    """32 bytes little-endian."""
    return scalar.to_bytes(32, "little")


def is_author_key(key: bytes) -> bool:
    """SPEC 2.3: canonical, of the prime-order subgroup, not the identity."""
    point = decode(key)
    return point is not None and point != IDENTITY and multiply(L, point) == IDENTITY


def is_signed(key: bytes, message: bytes, signature: bytes) -> bool:
    """SPEC 2.3: S < L; A canonical; neither A nor R of small order; R equals the bytes of [S]B - [h]A."""
    if len(key) != 32 or len(signature) != 64:
        return False
    r, s = signature[:32], int.from_bytes(signature[32:], "little")
    point = decode(key)
    if s >= L or point is None or point in torsion() or r in {encode(small) for small in torsion()}:
        return False
    expected = add(multiply(s, BASE), negative(multiply(challenge(r, key, message), point)))
    return r == encode(expected)


def mixed_key() -> bytes:
    """A key with a part of small order: not a valid author key, though signatures may verify under it."""
    return encode(add(multiply(_MIXED_SECRET, BASE), torsion()[0]))


def sign_mixed(message: bytes) -> bytes:
    """A signature under :func:`mixed_key` that verifies without the cofactor: h is a multiple of 8."""
    key = mixed_key()
    for nonce in count(1):
        r = encode(multiply(nonce, BASE))
        h = challenge(r, key, message)
        if h % 8 == 0:
            return r + scalar_bytes((nonce + h * _MIXED_SECRET) % L)
    raise AssertionError


def secret_scalar(seed: bytes) -> int:
    """The scalar a of the author whose secret seed this is (RFC 8032, 5.1.5)."""
    number = int.from_bytes(sha512(seed).digest()[:32], "little")
    return number & ~7 & (1 << 254) - 1 | 1 << 254
