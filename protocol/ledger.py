"""The ledger: the set of valid envelopes of a run, its slots and its digests (SPEC 7).

One door in, :meth:`Ledger.add`, for flood, catch-up and disk. What it holds depends on the set alone, never on the
order in which the set came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from operator import itemgetter

from protocol import limits
from protocol.envelope import Envelope, EnvelopeCodec
from protocol.errors import Ignore, IgnoreReason
from protocol.hashing import Author, Digest, FieldHasher, hash_fields, u32
from protocol.keys import SIGNATURE_BYTES
from protocol.manifest import Manifest

INNER_DIGEST_BYTES = 16
PAYLOAD_HASH_BYTES = 8

# A slot with one record counts; one with two different payloads is void and keeps the pair as its proof.
_Slot = bytes | tuple[bytes, bytes]

# Slots are named by their step within the span. These very objects are the keys: 32 bytes less for each record held.
_OFFSETS = tuple(range(limits.SPAN_STEPS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The envelope was new and its slot free: it counts."""

    envelope: Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class Voided:
    """A second payload for a slot: the author equivocated, and ``first``, which counted, counts no more."""

    first: Envelope
    second: Envelope


Outcome = Accepted | Voided


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What is held of one author in one span; bitmaps have bit ``step % SPAN_STEPS``, lowest bit of byte 0 first."""

    author: Author
    digest: bytes
    valid: bytes
    void: bytes


class _Bucket:
    """One author's slots in one span, by offset, and their digest.

    Slots mostly come in the order of their steps. As long as they do, each is hashed once, when it comes; after one
    that came late the digest is computed anew when it is asked for.
    """

    __slots__ = ("_author", "_hashed_to", "_hasher", "_span", "slots")

    def __init__(self, span: int, author: Author) -> None:
        self.slots: dict[int, _Slot] = {}
        self._span = span
        self._author = author
        self._hasher: FieldHasher | None = self._hasher_over(())
        self._hashed_to = -1

    def put(self, offset: int, slot: _Slot) -> None:
        """Fill a slot, or void it."""
        self.slots[offset] = slot
        if offset <= self._hashed_to:
            self._hasher = None
        elif self._hasher:
            self._hasher.append(self._field(offset, slot))
            self._hashed_to = offset

    def by_step(self) -> list[tuple[int, _Slot]]:
        """The slots in the order of their steps."""
        return sorted(self.slots.items(), key=itemgetter(0))

    def digest(self) -> bytes:
        """Hash over the slots by step: the payload of one that counts, the bare step of a void one (SPEC 7.5)."""
        if self._hasher is None:
            self._hasher, self._hashed_to = self._hasher_over(sorted(self.slots)), max(self.slots)
        return self._hasher.digest()[:INNER_DIGEST_BYTES]

    def digest_within(self, steps: bytes) -> bytes:
        """The digest if only the slots in the bitmap were held."""
        within = [offset for offset in sorted(self.slots) if has_bit(steps, offset)]
        return self._hasher_over(within).digest()[:INNER_DIGEST_BYTES]

    def _hasher_over(self, offsets: Iterable[int]) -> FieldHasher:
        fields = [self._field(offset, self.slots[offset]) for offset in offsets]
        return FieldHasher("sfnode/bucket/1", u32(self._span), self._author, *fields)

    def _field(self, offset: int, slot: _Slot) -> bytes:
        return slot[:-SIGNATURE_BYTES] if isinstance(slot, bytes) else u32(self._span * limits.SPAN_STEPS + offset)


class _Span:
    """All buckets of one span by shard and author, and the digests over them; those of changed shards are absent."""

    __slots__ = ("_digest", "_number", "_shard_digests", "_shards")

    def __init__(self, number: int) -> None:
        self._number = number
        self._shards: dict[int, dict[Author, _Bucket]] = {}
        self._shard_digests: dict[int, bytes] = {}
        self._digest: bytes | None = None

    def get(self, author: Author) -> _Bucket | None:
        """The author's bucket, if it holds anything."""
        return self._shards.get(shard_of(author), {}).get(author)

    def put(self, author: Author, offset: int, slot: _Slot) -> None:
        """Fill a slot of the author, or void it."""
        shard = shard_of(author)
        members = self._shards.setdefault(shard, {})
        if author not in members:
            members[author] = _Bucket(self._number, author)
        members[author].put(_OFFSETS[offset], slot)
        self._shard_digests.pop(shard, None)
        self._digest = None

    def buckets(self) -> Iterator[tuple[Author, _Bucket]]:
        """Every author's bucket, in no particular order."""
        for members in self._shards.values():
            yield from members.items()

    def buckets_of(self, shards: frozenset[int]) -> list[tuple[Author, _Bucket]]:
        """The buckets in the named shards, by author."""
        chosen = [item for shard in sorted(shards) for item in self._shards.get(shard, {}).items()]
        return sorted(chosen, key=itemgetter(0))

    def shard_digests(self) -> list[tuple[int, bytes]]:
        """(shard, 16-byte digest) of every shard that holds anything, ascending."""
        for shard in sorted(self._shards.keys() - self._shard_digests.keys()):
            parts = [
                part for author, bucket in sorted(self._shards[shard].items()) for part in (author, bucket.digest())
            ]
            self._shard_digests[shard] = _inner("sfnode/shard/1", *parts)
        return sorted(self._shard_digests.items())

    def digest(self) -> bytes:
        """The span's digest (SPEC 7.5)."""
        if self._digest is None:
            fields = [part for shard, digest in self.shard_digests() for part in (bytes([shard]), digest)]
            self._digest = _inner("sfnode/span/1", *fields)
        return self._digest


class Ledger:
    """Valid envelopes of one run, at most two different ones per slot."""

    def __init__(self, manifest: Manifest) -> None:
        self.codec = EnvelopeCodec(manifest)
        self._manifest = manifest
        self._spans: dict[int, _Span] = {}
        self._root: Digest | None = None  # absent after a change
        self._highest: dict[Author, int] = {}
        self.updates = 0
        self.void_slots = 0

    # --- the door -----------------------------------------------------------------------------------------

    def add(self, record: bytes, *, horizon_step: int | None = None) -> Outcome:
        """Take one record in, checks cheapest first.

        Args:
            record: bytes from a peer, a file or this node itself.
            horizon_step: last step acceptable at this moment, None without that bound.

        Raises:
            Reject: no honest node can have made it. The ledger is unchanged.
            Ignore: of no use now. The ledger is unchanged.
        """
        envelope = self.codec.decode_untrusted(record)
        held = self._held(envelope)
        self._check_usable(envelope, held, horizon_step)
        self.codec.check_signed(envelope)
        self._put(envelope, held)
        if held is None:
            self.updates += 1
            return Accepted(envelope=envelope)
        self.updates -= 1
        self.void_slots += 1
        return Voided(first=self.codec.decode_untrusted(held), second=envelope)

    def _held(self, envelope: Envelope) -> bytes | None:
        """The record that counts in the envelope's slot; Ignore when the slot is void or holds the same payload."""
        span, offset = divmod(envelope.step, limits.SPAN_STEPS)
        bucket = self._bucket(span, envelope.author)
        slot = bucket.slots.get(offset) if bucket else None
        if isinstance(slot, tuple):
            # [IGNORE] SPEC 7.2: a void slot stays void; further versions change nothing.
            raise Ignore(IgnoreReason.SLOT_VOID, f"step {envelope.step} of {envelope.author.hex()[:16]} is void")
        if slot is not None and slot[:-SIGNATURE_BYTES] == envelope.payload:
            # [IGNORE] SPEC 7.1: equal payloads are the same update, whatever their signature bytes.
            raise Ignore(IgnoreReason.ALREADY_HELD, f"step {envelope.step} of {envelope.author.hex()[:16]} is held")
        return slot

    def _check_usable(self, envelope: Envelope, held: bytes | None, horizon_step: int | None) -> None:
        # [IGNORE] SPEC 7.3: too far ahead of the frontier; anti-entropy brings it when the frontier has come near.
        if horizon_step is not None and held is None and envelope.step > horizon_step:
            raise Ignore(IgnoreReason.TOO_EARLY, f"step {envelope.step} is beyond {horizon_step}")
        # [IGNORE] SPEC 7.3: the author table is full.
        if not self.has_room_for(envelope.author):
            raise Ignore(IgnoreReason.AUTHORS_FULL, f"the run has {self._manifest.authors_max} authors already")

    def _put(self, envelope: Envelope, held: bytes | None) -> None:
        span, offset = divmod(envelope.step, limits.SPAN_STEPS)
        if span not in self._spans:
            self._spans[span] = _Span(span)
        self._spans[span].put(envelope.author, offset, envelope.record if held is None else (held, envelope.record))
        self._root = None
        if envelope.step > self._highest.get(envelope.author, -1):
            self._highest[envelope.author] = envelope.step

    # --- what is held -------------------------------------------------------------------------------------

    @property
    def authors_max(self) -> int:
        """How many authors the run may have."""
        return self._manifest.authors_max

    def has_room_for(self, author: Author) -> bool:
        """Whether the author table holds ``author`` or can take it."""
        return author in self._highest or len(self._highest) < self._manifest.authors_max

    def authors(self) -> dict[Author, int]:
        """Highest step held of each author, void slots included."""
        return dict(self._highest)

    def highest_step(self, author: Author) -> int:
        """Highest step held of ``author``; -1 when nothing is held."""
        return self._highest.get(author, -1)

    def envelopes(self) -> Iterator[Envelope]:
        """Every envelope that counts, by (step, author)."""
        for span in sorted(self._spans):
            members = [
                (offset, author, slot)
                for author, bucket in self._spans[span].buckets()
                for offset, slot in bucket.slots.items()
                if isinstance(slot, bytes)
            ]
            for _, _, record in sorted(members):
                yield self.codec.decode_untrusted(record)

    def records(self, span: int, author: Author, steps: bytes) -> Iterator[bytes]:
        """Records of the slots that the bitmap names, by step; both records of a void one."""
        bucket = self._bucket(span, author)
        for offset, slot in bucket.by_step() if bucket else ():
            if has_bit(steps, offset):
                yield from slot if isinstance(slot, tuple) else (slot,)

    # --- digests ------------------------------------------------------------------------------------------

    def root(self) -> Digest:
        """The ledger digest: equal roots, equal sets (SPEC 7.5)."""
        if self._root is None:
            fields = [part for span, digest in self.span_digests() for part in (u32(span), digest)]
            self._root = hash_fields("sfnode/ledger/1", self._manifest.run_id, *fields)
        return self._root

    def span_digests(self) -> list[tuple[int, bytes]]:
        """(span, 16-byte digest) of every span that holds anything, ascending."""
        return [(span, self._spans[span].digest()) for span in sorted(self._spans)]

    def shard_digests(self, span: int) -> list[tuple[int, bytes]]:
        """(shard, 16-byte digest) of every shard of ``span`` that holds anything, ascending."""
        return self._spans[span].shard_digests() if span in self._spans else []

    def holdings(self, span: int, shards: frozenset[int], after: bytes, count: int) -> list[Holdings]:
        """What is held in the named shards of ``span``, of the first ``count`` authors greater than ``after``."""
        listed = self._spans[span].buckets_of(shards) if span in self._spans else []
        later = ((author, bucket) for author, bucket in listed if author > after)
        return [_holdings(author, bucket) for author, bucket in islice(later, count)]

    def holdings_of(self, span: int, author: Author) -> Holdings:
        """What is held of one author in one span; empty bitmaps when nothing is."""
        return _holdings(author, self._bucket(span, author) or _Bucket(span, author))

    def digest_within(self, span: int, author: Author, steps: bytes) -> bytes:
        """The digest that :meth:`holdings_of` would give if only the slots in the bitmap were held."""
        return (self._bucket(span, author) or _Bucket(span, author)).digest_within(steps)

    def payload_hashes(self, span: int, author: Author) -> dict[int, bytes]:
        """First 8 bytes of the payload hash of each slot that counts, by step, ascending."""
        bucket = self._bucket(span, author)
        first = span * limits.SPAN_STEPS
        slots = bucket.by_step() if bucket else []
        return {first + offset: _payload_hash(slot) for offset, slot in slots if isinstance(slot, bytes)}

    def _bucket(self, span: int, author: Author) -> _Bucket | None:
        return self._spans[span].get(author) if span in self._spans else None


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


def _holdings(author: Author, bucket: _Bucket) -> Holdings:
    return Holdings(
        author=author,
        digest=bucket.digest() if bucket.slots else bytes(INNER_DIGEST_BYTES),
        valid=bitmap_of([offset for offset, slot in bucket.slots.items() if isinstance(slot, bytes)]),
        void=bitmap_of([offset for offset, slot in bucket.slots.items() if isinstance(slot, tuple)]),
    )


def _payload_hash(record: bytes) -> bytes:
    return hash_fields("sfnode/payload/1", record[:-SIGNATURE_BYTES])[:PAYLOAD_HASH_BYTES]


def _inner(domain: str, *fields: bytes) -> bytes:
    return hash_fields(domain, *fields)[:INNER_DIGEST_BYTES]
