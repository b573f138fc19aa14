"""The ledger: the set of valid envelopes of a run, its slots and its digests (SPEC 7).

One door in, :meth:`Ledger.add`, for flood, catch-up and disk. What it holds depends on the set alone, never on the
order in which the set came.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from protocol import limits
from protocol.envelope import Envelope, EnvelopeCodec
from protocol.errors import Ignore, IgnoreReason
from protocol.hashing import Author, Digest, hash_fields, u32
from protocol.keys import SIGNATURE_BYTES
from protocol.manifest import Manifest

INNER_DIGEST_BYTES = 16
PAYLOAD_HASH_BYTES = 8

# A slot with one record counts; one with two different payloads is void and keeps the pair as its proof.
_Slot = bytes | tuple[bytes, bytes]


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


@dataclass(slots=True)
class _Bucket:
    """One author's slots in one span, by step; ``digest`` is None after a change."""

    slots: dict[int, _Slot]
    digest: bytes | None = None


class Ledger:
    """Valid envelopes of one run, at most two different ones per slot."""

    def __init__(self, manifest: Manifest) -> None:
        self.codec = EnvelopeCodec(manifest)
        self._manifest = manifest
        self._spans: dict[int, dict[Author, _Bucket]] = {}
        self._shard_digests: dict[int, dict[int, bytes]] = {}  # by span; a span is absent after a change
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
        bucket = self._spans.get(envelope.step // limits.SPAN_STEPS, {}).get(envelope.author)
        slot = bucket.slots.get(envelope.step) if bucket else None
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
        span = envelope.step // limits.SPAN_STEPS
        bucket = self._spans.setdefault(span, {}).setdefault(envelope.author, _Bucket(slots={}))
        bucket.slots[envelope.step] = envelope.record if held is None else (held, envelope.record)
        bucket.digest = None
        self._shard_digests.pop(span, None)
        self._highest[envelope.author] = max(envelope.step, self._highest.get(envelope.author, -1))

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
                (step, author, slot)
                for author, bucket in self._spans[span].items()
                for step, slot in bucket.slots.items()
                if isinstance(slot, bytes)
            ]
            for _, _, record in sorted(members):
                yield self.codec.decode_untrusted(record)

    def records(self, span: int, author: Author, steps: bytes) -> Iterator[bytes]:
        """Records of the slots that the bitmap names, by step; both records of a void one."""
        bucket = self._spans.get(span, {}).get(author)
        for step in sorted(bucket.slots) if bucket else ():
            if bucket and has_bit(steps, step % limits.SPAN_STEPS):
                slot = bucket.slots[step]
                yield from slot if isinstance(slot, tuple) else (slot,)

    # --- digests ------------------------------------------------------------------------------------------

    def root(self) -> Digest:
        """The ledger digest: equal roots, equal sets (SPEC 7.5)."""
        fields = [part for span, digest in self.span_digests() for part in (u32(span), digest)]
        return hash_fields("sfnode/ledger/1", self._manifest.run_id, *fields)

    def span_digests(self) -> list[tuple[int, bytes]]:
        """(span, 16-byte digest) of every span that holds anything, ascending."""
        return [(span, self._span_digest(span)) for span in sorted(self._spans)]

    def shard_digests(self, span: int) -> list[tuple[int, bytes]]:
        """(shard, 16-byte digest) of every shard of ``span`` that holds anything, ascending."""
        if span not in self._shard_digests:
            self._shard_digests[span] = self._compute_shard_digests(span)
        return sorted(self._shard_digests[span].items())

    def holdings(self, span: int, shards: frozenset[int], after: bytes, count: int) -> list[Holdings]:
        """What is held in the named shards of ``span``, of the first ``count`` authors greater than ``after``."""
        members = self._spans.get(span, {})
        chosen = (author for author in sorted(members) if author > after and shard_of(author) in shards)
        return [self._holdings(span, author, members[author]) for author in islice(chosen, count)]

    def holdings_of(self, span: int, author: Author) -> Holdings:
        """What is held of one author in one span; empty bitmaps when nothing is."""
        bucket = self._spans.get(span, {}).get(author)
        return self._holdings(span, author, bucket or _Bucket(slots={}))

    def digest_within(self, span: int, author: Author, steps: bytes) -> bytes:
        """The digest that :meth:`holdings_of` would give if only the slots in the bitmap were held."""
        bucket = self._spans.get(span, {}).get(author)
        slots = bucket.slots if bucket else {}
        within = {step: slot for step, slot in slots.items() if has_bit(steps, step % limits.SPAN_STEPS)}
        return _bucket_digest(span, author, _Bucket(slots=within))

    def payload_hashes(self, span: int, author: Author) -> dict[int, bytes]:
        """First 8 bytes of the payload hash of each slot that counts, by step, ascending."""
        bucket = self._spans.get(span, {}).get(author)
        slots = sorted(bucket.slots.items()) if bucket else []
        return {step: _payload_hash(slot) for step, slot in slots if isinstance(slot, bytes)}

    def _holdings(self, span: int, author: Author, bucket: _Bucket) -> Holdings:
        valid = [step for step, slot in bucket.slots.items() if isinstance(slot, bytes)]
        void = [step for step, slot in bucket.slots.items() if isinstance(slot, tuple)]
        return Holdings(
            author=author,
            digest=_bucket_digest(span, author, bucket) if bucket.slots else bytes(INNER_DIGEST_BYTES),
            valid=bitmap_of(valid),
            void=bitmap_of(void),
        )

    def _compute_shard_digests(self, span: int) -> dict[int, bytes]:
        fields: dict[int, list[bytes]] = {}
        members = self._spans.get(span, {})
        for author in sorted(members):
            fields.setdefault(shard_of(author), []).extend((author, _bucket_digest(span, author, members[author])))
        return {shard: _inner("sfnode/shard/1", *parts) for shard, parts in fields.items()}

    def _span_digest(self, span: int) -> bytes:
        fields = [part for shard, digest in self.shard_digests(span) for part in (bytes([shard]), digest)]
        return _inner("sfnode/span/1", *fields)


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


def _bucket_digest(span: int, author: Author, bucket: _Bucket) -> bytes:
    """Hash over the slots by step: the payload of one that counts, the bare step of a void one (SPEC 7.5)."""
    if bucket.digest is None:
        fields = [
            slot[:-SIGNATURE_BYTES] if isinstance(slot, bytes) else u32(step)
            for step, slot in sorted(bucket.slots.items())
        ]
        bucket.digest = _inner("sfnode/bucket/1", u32(span), author, *fields)
    return bucket.digest


def _payload_hash(record: bytes) -> bytes:
    return hash_fields("sfnode/payload/1", record[:-SIGNATURE_BYTES])[:PAYLOAD_HASH_BYTES]


def _inner(domain: str, *fields: bytes) -> bytes:
    return hash_fields(domain, *fields)[:INNER_DIGEST_BYTES]
