"""What is held of one author in one span, and of all authors in one: slots and their digests (SPEC 7.5).

The two inner levels of the ledger's digests. What may come in is decided by the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

from protocol import limits
from protocol.hashing import Author, FieldHasher, hash_fields, u32
from protocol.keys import SIGNATURE_BYTES

INNER_DIGEST_BYTES = 16
PAYLOAD_HASH_BYTES = 8

# A slot with one record counts; one with two different payloads is void and keeps the pair as its proof.
Slot = bytes | tuple[bytes, bytes]

# Slots are named by their step within the span. These very objects are the keys: 32 bytes less for each record held.
_OFFSETS = tuple(range(limits.SPAN_STEPS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What is held of one author in one span; bitmaps have bit ``step % SPAN_STEPS``, lowest bit of byte 0 first."""

    author: Author
    digest: bytes
    valid: bytes
    void: bytes


class Bucket:
    """One author's slots in one span, by offset, and their digest.

    Slots mostly come in the order of their steps. As long as they do, each is hashed once, when it comes; after one
    that came late the digest is computed anew when it is asked for.
    """

    __slots__ = ("_author", "_hashed_to", "_hasher", "_span", "slots")

    def __init__(self, span: int, author: Author) -> None:
        self.slots: dict[int, Slot] = {}
        self._span = span
        self._author = author
        self._hasher: FieldHasher | None = self._hasher_over(())
        self._hashed_to = -1

    def put(self, offset: int, slot: Slot) -> None:
        """Fill a slot, or void it."""
        self.slots[offset] = slot
        if offset <= self._hashed_to:
            self._hasher = None
        elif self._hasher:
            self._hasher.append(self._field(offset, slot))
            self._hashed_to = offset

    def drop_from(self, offset: int) -> list[Slot]:
        """Empty the slots from ``offset`` on; returns them by step."""
        dropped = [self.slots.pop(each) for each in sorted(self.slots) if each >= offset]
        self._hasher = None
        return dropped

    def by_step(self) -> list[tuple[int, Slot]]:
        """The slots in the order of their steps."""
        return sorted(self.slots.items(), key=itemgetter(0))

    def digest(self) -> bytes:
        """Hash over the slots by step: the payload of one that counts, the bare step of a void one (SPEC 7.5)."""
        if self._hasher is None:
            self._hasher, self._hashed_to = self._hasher_over(sorted(self.slots)), max(self.slots, default=-1)
        return self._hasher.digest()[:INNER_DIGEST_BYTES]

    def digest_within(self, steps: bytes) -> bytes:
        """The digest if only the slots in the bitmap were held."""
        within = [offset for offset in sorted(self.slots) if has_bit(steps, offset)]
        return self._hasher_over(within).digest()[:INNER_DIGEST_BYTES]

    def _hasher_over(self, offsets: Iterable[int]) -> FieldHasher:
        fields = [self._field(offset, self.slots[offset]) for offset in offsets]
        return FieldHasher("sfnode/bucket/1", u32(self._span), self._author, *fields)

    def _field(self, offset: int, slot: Slot) -> bytes:
        return slot[:-SIGNATURE_BYTES] if isinstance(slot, bytes) else u32(self._span * limits.SPAN_STEPS + offset)


class Span:
    """All buckets of one span by shard and author, and the digests over them; those of changed shards are absent."""

    __slots__ = ("_digest", "_number", "_shard_digests", "_shards")

    def __init__(self, number: int) -> None:
        self._number = number
        self._shards: dict[int, dict[Author, Bucket]] = {}
        self._shard_digests: dict[int, bytes] = {}
        self._digest: bytes | None = None

    def get(self, author: Author) -> Bucket | None:
        """The author's bucket, if it holds anything."""
        return self._shards.get(shard_of(author), {}).get(author)

    def put(self, author: Author, offset: int, slot: Slot) -> None:
        """Fill a slot of the author, or void it."""
        shard = shard_of(author)
        members = self._shards.setdefault(shard, {})
        if author not in members:
            members[author] = Bucket(self._number, author)
        members[author].put(_OFFSETS[offset], slot)
        self._shard_digests.pop(shard, None)
        self._digest = None

    def drop_from(self, author: Author, offset: int) -> list[Slot]:
        """Empty the author's slots from ``offset`` on; returns them by step."""
        shard = shard_of(author)
        members = self._shards.get(shard, {})
        bucket = members.get(author)
        if bucket is None:
            return []
        dropped = bucket.drop_from(offset)
        if not bucket.slots:
            del members[author]
        if not members:
            del self._shards[shard]
        self._shard_digests.pop(shard, None)
        self._digest = None
        return dropped

    @property
    def is_empty(self) -> bool:
        """Whether no slot holds anything."""
        return not self._shards

    def buckets(self) -> Iterator[tuple[Author, Bucket]]:
        """Every author's bucket, in no particular order."""
        for members in self._shards.values():
            yield from members.items()

    def buckets_of(self, shards: frozenset[int]) -> list[tuple[Author, Bucket]]:
        """The buckets in the named shards, by author."""
        chosen = [item for shard in sorted(shards) for item in self._shards.get(shard, {}).items()]
        return sorted(chosen, key=itemgetter(0))

    def shard_digests(self) -> list[tuple[int, bytes]]:
        """(shard, 16-byte digest) of every shard that holds anything, ascending."""
        for shard in sorted(self._shards.keys() - self._shard_digests.keys()):
            parts = [
                part for author, bucket in sorted(self._shards[shard].items()) for part in (author, bucket.digest())
            ]
            self._shard_digests[shard] = inner_digest("sfnode/shard/1", *parts)
        return sorted(self._shard_digests.items())

    def digest(self) -> bytes:
        """The span's digest (SPEC 7.5)."""
        if self._digest is None:
            fields = [part for shard, digest in self.shard_digests() for part in (bytes([shard]), digest)]
            self._digest = inner_digest("sfnode/span/1", *fields)
        return self._digest


@lru_cache(maxsize=limits.AUTHORS_MAX)
def shard_of(author: bytes) -> int:
    """Shard 0 ... 255 of an author: the first byte of its hash, so that keys cannot be picked for free to crowd one."""
    return hash_fields("sfnode/author/1", author)[0]


def bitmap_of(steps: list[int]) -> bytes:
    """Bitmap of SPAN_STEPS bits with bit ``step % SPAN_STEPS`` set for each step."""
    bits = 0
    for step in steps:
        bits |= 1 << (step % limits.SPAN_STEPS)
    return bits.to_bytes(limits.SPAN_STEPS // 8, "little")


def has_bit(bitmap: bytes, index: int) -> bool:
    """Whether bit ``index`` is set."""
    return bool(bitmap[index // 8] >> (index % 8) & 1)


def holdings_in(author: Author, bucket: Bucket) -> Holdings:
    return Holdings(
        author=author,
        digest=bucket.digest() if bucket.slots else bytes(INNER_DIGEST_BYTES),
        valid=bitmap_of([offset for offset, slot in bucket.slots.items() if isinstance(slot, bytes)]),
        void=bitmap_of([offset for offset, slot in bucket.slots.items() if isinstance(slot, tuple)]),
    )


def payload_hash(record: bytes) -> bytes:
    return hash_fields("sfnode/payload/1", record[:-SIGNATURE_BYTES])[:PAYLOAD_HASH_BYTES]


def inner_digest(domain: str, *fields: bytes) -> bytes:
    return hash_fields(domain, *fields)[:INNER_DIGEST_BYTES]
