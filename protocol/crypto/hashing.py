"""Domain-separated hashing and the one rounding rule. Every digest, key and seed of the project comes from here."""

import hashlib
from collections.abc import Iterable
from typing import NewType

RunId = NewType("RunId", bytes)
Author = NewType("Author", bytes)
Digest = NewType("Digest", bytes)

DIGEST_BYTES = 32


def hash_fields(domain: str, *fields: bytes) -> Digest:
    """Return the SHA-256 of the domain tag and the fields, each preceded by its length as u32 big-endian (SPEC 2.1).

    The lengths make the encoding injective: no two different field lists give the same input.
    """
    hasher = hashlib.sha256()
    for field in (domain.encode("ascii"), *fields):
        hasher.update(len(field).to_bytes(4, "big"))
        hasher.update(field)
    return Digest(hasher.digest())


def hash_pieces(domain: str, length: int, pieces: Iterable[memoryview]) -> Digest:
    """Return :func:`hash_fields` of one field of ``length`` bytes in pieces, which need not be in memory at once."""
    tag = domain.encode("ascii")
    hasher = hashlib.sha256(u32(len(tag)) + tag + u32(length))
    for piece in pieces:
        hasher.update(piece)
    return Digest(hasher.digest())


def key_of(domain: str, *fields: bytes) -> int:
    """Return a 64-bit generator key or seed: the first 8 bytes of ``hash_fields``, big-endian (SPEC 2.2)."""
    return int.from_bytes(hash_fields(domain, *fields)[:8], "big")


def seed_of(run_id: RunId, author: Author, step: int) -> int:
    """Return the one 64-bit seed that ``author`` may use in the round that starts at ``step`` (SPEC 2.2)."""
    return key_of("sfnode/seed/1", run_id, author, u32(step))


def u32(value: int) -> bytes:
    """Return ``value`` as 4 bytes big-endian. Raises OverflowError outside 0 ... 2^32 - 1."""
    return value.to_bytes(4, "big")


def round_half_away(value: float) -> int:
    """Round to the nearest integer, halves away from zero (SPEC 5.1).

    This is the only rounding in the project: ``round`` of Python and NumPy goes half to even, and ``>>`` floors.
    """
    magnitude = int(abs(value))  # truncation is exact
    if abs(value) - magnitude >= 0.5:
        magnitude += 1
    return magnitude if value >= 0 else -magnitude
