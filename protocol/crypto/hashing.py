"""Domain-separated hashing and the one rounding rule. Every digest, key and seed of the project comes from here."""

from __future__ import annotations

import hashlib
from typing import NewType

RunId = NewType("RunId", bytes)
Author = NewType("Author", bytes)
Digest = NewType("Digest", bytes)

DIGEST_BYTES = 32


def hash_fields(domain: str, *fields: bytes) -> Digest:
    """SHA-256 over the domain tag and the fields, each preceded by its length as u32 big-endian (SPEC 2.1).

    The lengths make the encoding injective: no two different field lists give the same input.
    """
    hasher = hashlib.sha256()
    for field in (domain.encode("ascii"), *fields):
        hasher.update(len(field).to_bytes(4, "big"))
        hasher.update(field)
    return Digest(hasher.digest())


def key_of(domain: str, *fields: bytes) -> int:
    """First 8 bytes of ``hash_fields`` as a big-endian integer: a 64-bit generator key or seed (SPEC 2.2)."""
    return int.from_bytes(hash_fields(domain, *fields)[:8], "big")


def u32(value: int) -> bytes:
    """``value`` as 4 bytes big-endian; OverflowError outside 0 ... 2^32 - 1."""
    return value.to_bytes(4, "big")


def round_half_away(value: float) -> int:
    """Nearest integer, halves away from zero (SPEC 5.1). The only rounding in the project: Python's ``round`` goes
    half to even, NumPy's too, ``>>`` floors."""
    magnitude = int(abs(value))  # truncation is exact
    if abs(value) - magnitude >= 0.5:
        magnitude += 1
    return magnitude if value >= 0 else -magnitude
