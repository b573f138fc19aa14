"""Door: `Signer` and `hash_fields`. SHA-256 over fields with a domain tag, and the one Ed25519 verifier."""

from protocol.crypto.hashing import (
    DIGEST_BYTES,
    Author,
    Digest,
    RunId,
    hash_fields,
    hash_pieces,
    key_of,
    round_half_away,
    seed_of,
    u32,
)
from protocol.crypto.keys import KEY_BYTES, SIGNATURE_BYTES, Signer, check_verifier, is_author_key, is_signed

__all__ = [
    "Author",
    "DIGEST_BYTES",
    "Digest",
    "KEY_BYTES",
    "RunId",
    "SIGNATURE_BYTES",
    "Signer",
    "check_verifier",
    "hash_fields",
    "hash_pieces",
    "is_author_key",
    "is_signed",
    "key_of",
    "round_half_away",
    "seed_of",
    "u32",
]
