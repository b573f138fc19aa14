"""Vectors of Ed25519 (SPEC 2.3): the families of edge cases on which verifiers are known to differ, built here."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from protocol.crypto.keys import Signer, is_author_key, is_signed
from tests.support.ledgers import signer
from tests.vectors import edwards
from tests.vectors.edwards import BASE, IDENTITY, L, P, Point, add, challenge, encode, encode_raw, multiply, negative
from tests.vectors.notation import Case, Document, case, document

_SECRET = 0x5EEDF100D5EEDF100D5EEDF100D  # the scalar a of the key A = a B; any number does
_NONCE = 0x1234567890ABCDEF
_MESSAGE = b"sfnode"


def ed25519() -> Document:
    """ed25519.json"""
    return document("Author keys and signatures, with the edge cases: SPEC 2.3", [*_keys(), *_signing(), *_verifying()])


# --- keys ---------------------------------------------------------------------------------------------------------


def _keys() -> list[Case]:
    named = {
        "of the secret seed of zeros": Signer(bytes(32)).author,
        "of another seed": signer(1).author,
        "the base point": encode(BASE),
        "minus the base point": encode(negative(BASE)),
        **dict(_small_order_keys()),
        **dict(_odd_encodings()),
        **{f"mixed order: A + {i + 1} t": encode(add(_point(), t)) for i, t in enumerate(edwards.torsion()[:7])},
        "31 bytes": encode(BASE)[:31],
        "33 bytes": encode(BASE) + b"\0",
        "no bytes": b"",
    }
    return [
        case(f"key: {name}", "author_key", {"key": key.hex()}, {"is_valid": is_author_key(key)})
        for name, key in named.items()
    ]


def _point() -> Point:
    return multiply(_SECRET, BASE)


def _small_order_keys() -> Iterator[tuple[str, bytes]]:
    for index, point in enumerate(edwards.torsion()):
        name = "the identity" if point == IDENTITY else f"order {edwards.order_of_torsion(point)}"
        yield f"small order: {index + 1} t, {name}", encode(point)


def _odd_encodings() -> Iterator[tuple[str, bytes]]:
    """Encodings that some decoders take although they are not canonical, and some that are not points at all."""
    yield "not canonical: identity with the sign bit of x = 0", encode_raw(1, 1)
    yield "not canonical: order 2 with the sign bit of x = 0", encode_raw(P - 1, 1)
    for y, sign in ((0, 0), (0, 1), (1, 0), (1, 1)):
        yield f"not canonical: small order, y = p + {y}, sign {sign}", encode_raw(P + y, sign)
    for y in [y for y in range(2, 19) if edwards.x_of(y, 0) is not None][:3]:
        yield f"not canonical: a point of large order, y = p + {y}", encode_raw(P + y, 0)
    for y in [y for y in range(2, 19) if edwards.x_of(y, 0) is None][:2]:
        yield f"no point: y = {y}", encode_raw(y, 0)
        yield f"no point: y = p + {y}", encode_raw(P + y, 0)
    yield "no point: all bits set", b"\xff" * 32


# --- signatures ---------------------------------------------------------------------------------------------------


def _signing() -> list[Case]:
    messages = {"no bytes": b"", "one byte": b"\x00", "text": _MESSAGE, "128 bytes": bytes(range(128))}
    return [
        case(
            f"sign: seed {seed[0]:02x}..., {name}",
            "sign",
            {"secret_seed": seed.hex(), "message": message.hex()},
            {"author": Signer(seed).author.hex(), "signature": Signer(seed).sign(message).hex()},
        )
        for seed in (bytes(32), b"\xff" * 32)
        for name, message in messages.items()
    ]


def _verifying() -> list[Case]:
    rows = {**dict(_ordinary()), **dict(_bad_scalars()), **dict(_small_parts()), **dict(_mixed_parts())}
    return [
        case(
            f"verify: {name}",
            "verify",
            {"key": key.hex(), "message": message.hex(), "signature": signature.hex()},
            {"is_valid": is_signed(key, message, signature)},
        )
        for name, (key, message, signature) in rows.items()
    ]


_Row = tuple[str, tuple[bytes, bytes, bytes]]  # name; key, message, signature


def _flipped(data: bytes, bit: int) -> bytes:
    number = int.from_bytes(data, "little") ^ 1 << bit
    return number.to_bytes(len(data), "little")


def _ordinary() -> Iterator[_Row]:
    author = Signer(bytes(32))
    key, good = author.author, author.sign(_MESSAGE)
    yield "valid", (key, _MESSAGE, good)
    yield "valid, no message", (key, b"", author.sign(b""))
    yield "valid, long message", (key, bytes(1_000), author.sign(bytes(1_000)))
    yield "valid, built with integers", _signed(_point(), _SECRET, multiply(_NONCE, BASE), _NONCE, _MESSAGE)
    yield "another message", (key, _MESSAGE + b"\0", good)
    yield "another key", (signer(1).author, _MESSAGE, good)
    for name, bit in {
        "first of R": 0,
        "sign of R": 255,
        "first of S": 256,
        "middle of S": 384,
        "last of S": 511,
    }.items():
        yield f"flipped bit: {name}", (key, _MESSAGE, _flipped(good, bit))
    yield "flipped bit: message", (key, _flipped(_MESSAGE, 3), good)
    yield "flipped bit: sign of the key", (_flipped(key, 255), _MESSAGE, good)
    yield "signature of zeros", (key, _MESSAGE, bytes(64))
    yield "halves exchanged", (key, _MESSAGE, good[32:] + good[:32])
    yield "63 bytes", (key, _MESSAGE, good[:63])
    yield "65 bytes", (key, _MESSAGE, good + b"\0")
    yield "key that is no point", (encode_raw(2, 0), _MESSAGE, good)


def _bad_scalars() -> Iterator[_Row]:
    """S of L or more: the same signature in another spelling."""
    key, message, good = _signed(_point(), _SECRET, multiply(_NONCE, BASE), _NONCE, _MESSAGE)
    r, s = good[:32], int.from_bytes(good[32:], "little")
    for times in (1, 2, 14):
        yield f"S + {times} L", (key, message, r + edwards.scalar_bytes(s + times * L))
    yield "S = L", (key, message, r + edwards.scalar_bytes(L))
    yield "S = L - 1", (key, message, r + edwards.scalar_bytes(L - 1))
    yield "S = 0", (key, message, r + bytes(32))
    yield "S of ones", (key, message, r + b"\xff" * 32)
    for bit in (253, 254, 255):
        yield f"S with bit {bit}", (key, message, r + edwards.scalar_bytes(s | 1 << bit))


def _signed(key: Point, secret: int, commitment: Point, nonce: int, message: bytes) -> tuple[bytes, bytes, bytes]:
    """Key, message and (R, S) with S = nonce + h secret: what fits up to the parts of small order."""
    r, written = encode(commitment), encode(key)
    s = (nonce + challenge(r, written, message) * secret) % L
    return written, message, r + edwards.scalar_bytes(s)


def _small_parts() -> Iterator[_Row]:
    """A or R of small order, with S such that the equation holds wherever it can."""
    r_point = multiply(_NONCE, BASE)
    for index, small in enumerate(edwards.torsion()):
        order = edwards.order_of_torsion(small)
        message = next(m for m in _messages() if challenge(encode(r_point), encode(small), m) % order == 0)
        yield f"A = {index + 1} t of small order, equation holds", _signed(small, 0, r_point, _NONCE, message)
    for index, small in enumerate(edwards.torsion()):
        holds = "without" if small == IDENTITY else "only with"
        yield f"R = {index + 1} t, equation holds {holds} the cofactor", _signed(_point(), _SECRET, small, 0, _MESSAGE)
    for y, sign in ((1, 1), (P + 1, 0), (P + 1, 1)):
        r, key = encode_raw(y, sign), encode(_point())
        s = challenge(r, key, _MESSAGE) * _SECRET % L
        label = f"R = identity, not canonical: y = {'p + 1' if y > P else 1}, sign {sign}"
        yield label, (key, _MESSAGE, r + edwards.scalar_bytes(s))
    for y, sign in ((1, 1), (P + 1, 0), (P + 1, 1)):
        r = encode(r_point)
        label = f"A = identity, not canonical: y = {'p + 1' if y > P else 1}, sign {sign}"
        yield label, (encode_raw(y, sign), _MESSAGE, r + edwards.scalar_bytes(_NONCE))
    yield "A and R the identity, S = 0", (encode(IDENTITY), _MESSAGE, encode(IDENTITY) + bytes(32))


def _messages() -> Iterator[bytes]:
    return (b"message %d" % number for number in count())


def _mixed_parts() -> Iterator[_Row]:
    """Points with a part of small order: here verifiers with and without the cofactor disagree."""
    t, r_point = edwards.torsion()[0], multiply(_NONCE, BASE)
    mixed = add(_point(), t)
    hit = next(m for m in _messages() if challenge(encode(r_point), encode(mixed), m) % 8 == 0)
    miss = next(m for m in _messages() if challenge(encode(r_point), encode(mixed), m) % 8 != 0)
    yield "A mixed, equation holds without the cofactor", _signed(mixed, _SECRET, r_point, _NONCE, hit)
    yield "A mixed, equation holds only with the cofactor", _signed(mixed, _SECRET, r_point, _NONCE, miss)
    for index, small in enumerate(edwards.torsion()[:7]):
        row = _signed(_point(), _SECRET, add(r_point, small), _NONCE, _MESSAGE)
        yield f"A valid, R mixed by {index + 1} t: only with the cofactor", row
    yield "A and R mixed, equation holds without the cofactor", _both_mixed(mixed, r_point, t)


def _both_mixed(key: Point, r_point: Point, t: Point) -> tuple[bytes, bytes, bytes]:
    """R = r B - h t, for a message whose h is such that this R gives it."""
    commitment = add(r_point, t)
    message = next(m for m in _messages() if challenge(encode(commitment), encode(key), m) % 8 == 7)
    return _signed(key, _SECRET, commitment, _NONCE, message)
