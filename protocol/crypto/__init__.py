"""Door: `Signer` and `hash_fields`. SHA-256 over fields with a domain tag, and the one Ed25519 verifier."""

from protocol.crypto import hashing
from protocol.crypto.hashing import Author, Digest, RunId
from protocol.crypto.keys import KEY_BYTES, SIGNATURE_BYTES, Signer, check_verifier, is_author_key, is_signed
