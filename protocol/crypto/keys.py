"""Ed25519 (RFC 8032) by one pinned verifier, libsodium: two nodes never disagree on a signature (SPEC 2.3)."""

from functools import lru_cache

from nacl.bindings import crypto_core_ed25519_is_valid_point, crypto_sign_open
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey

from protocol.crypto.hashing import Author
from protocol.errors import OperatorError

KEY_BYTES = 32
SIGNATURE_BYTES = 64

# A signature whose R is of mixed order: it fits only where both sides are multiplied by the cofactor (SPEC 2.3.4).
_COFACTORED_KEY = bytes.fromhex("8fa00f91e9a9d57ebdc689ce28744913e7c512df34a614c4d8a19482fecabaf4")
_COFACTORED_SIGNATURE = bytes.fromhex(
    "c2ecc2af9bfefd06ee0f9cbb9adf4abda71f6a01db3f1a78458754856f6bd5c4"
    "fc80fa23dcbeb0c4c1ad7642da4bc63ac551834da92e6bf23eb6277701396300"
)


class Signer:
    """Signs with a private key. Signing is deterministic: equal bytes give equal signatures."""

    def __init__(self, seed: bytes) -> None:
        """Derive the key from ``seed``, the 32-byte Ed25519 secret seed."""
        self._key = SigningKey(seed)
        self.author = Author(bytes(self._key.verify_key))

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature of ``message``."""
        return self._key.sign(message).signature


@lru_cache(maxsize=4_096)
def is_author_key(key: bytes) -> bool:
    """Return whether ``key`` canonically encodes a point of the prime-order subgroup other than the identity.

    Small-order and mixed-order keys would let one signature fit many messages, or two verifiers disagree.
    """
    return len(key) == KEY_BYTES and bool(crypto_core_ed25519_is_valid_point(key))


def is_signed(author: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether ``signature`` (64 bytes) is the author's over ``message``. Takes about 45 us.

    It calls libsodium directly (``crypto_sign_verify_detached`` inside), which does not check the key's length.
    """
    if len(author) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        crypto_sign_open(signature + message, author)
    except BadSignatureError:
        return False
    return True


@lru_cache(maxsize=1)
def check_verifier() -> None:
    """Refuse a libsodium that verifies with the cofactor, as its later versions do: it would split the network.

    Raises OperatorError. Checks once per process.
    """
    if is_signed(_COFACTORED_KEY, b"sfnode", _COFACTORED_SIGNATURE):
        raise OperatorError(
            "the installed libsodium accepts signatures that other nodes refuse (it verifies with the cofactor), so "
            "this node would split from the network. Install the version of PyNaCl that sfnode asks for: "
            "pip install pynacl==1.6.2"
        )
