"""Author keys and libp2p peer ids: the same key in two spellings."""

from __future__ import annotations

from protocol.hashing import Author
from protocol.wire import PeerId

_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_IDENTITY_PREFIX = bytes.fromhex("002408011220")  # identity multihash of the protobuf {Ed25519, 32 bytes}


def peer_id_of(author: Author) -> PeerId:
    """The libp2p peer id of an Ed25519 public key: base58 of its identity multihash (libp2p peer-ids spec)."""
    number = int.from_bytes(_IDENTITY_PREFIX + author, "big")
    digits = []
    while number:
        number, digit = divmod(number, 58)
        digits.append(_ALPHABET[digit])
    return PeerId("1" + "".join(reversed(digits)))  # one leading zero byte: one "1"
