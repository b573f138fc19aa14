"""Ed25519 (RFC 8032) by one pinned verifier, libsodium: two nodes never disagree on a signature (SPEC 2.3)."""

from __future__ import annotations

from functools import lru_cache

from nacl.bindings import crypto_core_ed25519_is_valid_point
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from protocol.hashing import Author

KEY_BYTES = 32
SIGNATURE_BYTES = 64


class Signer:
    """A private key. Signing is deterministic: equal bytes give equal signatures."""

    def __init__(self, seed: bytes) -> None:
        """``seed``: the 32-byte Ed25519 secret seed."""
        self._key = SigningKey(seed)
        self.author = Author(bytes(self._key.verify_key))

    def sign(self, message: bytes) -> bytes:
        """The 64-byte signature of ``message``."""
        return self._key.sign(message).signature


@lru_cache(maxsize=4_096)
def is_author_key(key: bytes) -> bool:
    """Whether ``key`` is a canonical encoding of a point of the prime-order subgroup, not the identity.

    Small-order and mixed-order keys would let one signature fit many messages, or two verifiers disagree.
    """
    return len(key) == KEY_BYTES and bool(crypto_core_ed25519_is_valid_point(key))


def is_signed(author: bytes, message: bytes, signature: bytes) -> bool:
    """Whether ``signature`` (64 bytes) is the author's over ``message``. About 45 us."""
    try:
        VerifyKey(author).verify(message, signature)
    except (BadSignatureError, ValueError):
        return False
    return True
