"""Who may contribute to a run by its manifest, and the work that an open run may require of a key (SPEC 1.1, 7.7)."""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Annotated

from protocol import limits
from protocol.crypto import hashing
from protocol.schema import Bound


class AdmissionKind(StrEnum):
    """Who may contribute: any key, keys that the owner has admitted, or also keys that have claimed an invitation."""

    OPEN = "open"
    ALLOW_LIST = "allow-list"
    INVITE = "invite"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionSpec:
    """The manifest's ``admission``.

    Attributes:
        pow_bits: work that a key must have cost, as leading zero bits; 0 unless the run is open.
    """

    kind: AdmissionKind
    pow_bits: Annotated[int, Bound(0, limits.POW_BITS_MAX)]

    def in_words(self) -> str:
        return f"open, {self.pow_bits} bits of work" if self.pow_bits else self.kind.value


OPEN_TO_ALL = AdmissionSpec(kind=AdmissionKind.OPEN, pow_bits=0)  # no key has to cost any work


@lru_cache(maxsize=4_096)
def work_of(run_id: bytes, author: bytes) -> int:
    """Return the work in a key for this run alone: the leading zero bits of a hash, which take 2^bits keys to find."""
    digest = hashing.hash_fields("sfnode/work/1", run_id, author)
    return 8 * hashing.DIGEST_BYTES - int.from_bytes(digest, "big").bit_length()


def has_work(spec: AdmissionSpec, run_id: bytes, author: bytes) -> bool:
    """Return whether the key ``author`` has the work that the run requires."""
    return spec.pow_bits == 0 or work_of(run_id, author) >= spec.pow_bits
