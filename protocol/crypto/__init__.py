"""Door: `Signer` and `hash_fields`. SHA-256 over fields with a domain tag, and the one Ed25519 verifier."""

from protocol.crypto import hashing as hashing
from protocol.crypto.hashing import Author as Author, Digest as Digest, RunId as RunId
from protocol.crypto.keys import (
    KEY_BYTES as KEY_BYTES,
    SIGNATURE_BYTES as SIGNATURE_BYTES,
    Signer as Signer,
    check_verifier as check_verifier,
    is_author_key as is_author_key,
    is_signed as is_signed,
)
