"""The ledger: the set of valid envelopes of a run, its slots and its digests (SPEC 7).

Records from flood, catch-up and disk all enter through :meth:`Ledger.add`. The ledger's content depends only on the
sets of envelopes and statements, never on the order in which they came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter

from protocol import limits
from protocol.crypto import KEY_BYTES, SIGNATURE_BYTES, Author, Digest, hash_fields, u32
from protocol.errors import Ignore, IgnoreReason
from protocol.ledger.digest_buckets import Bucket, Span, holdings_in, payload_hash
from protocol.ledger.envelope import Envelope, EnvelopeCodec
from protocol.ledger.record_store import Archive, ReadBack, Slot, records_of, step_of
from protocol.ledger.roster import Roster
from protocol.ledger.statements import Statement
from protocol.run import Manifest
from protocol.wire import AuthorHoldings


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The envelope was new and its slot free: it counts."""

    envelope: Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class Voided:
    """The envelope was a second payload for its slot: the author equivocated, and ``first`` no longer counts."""

    first: Envelope
    second: Envelope


Outcome = Accepted | Voided


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerStatistics:
    """Holds how much a ledger holds. ``payload_bytes``: size of its records, without frames and copies."""

    updates: int
    void_slots: int
    authors: int
    payload_bytes: int


_STEPS_AT_ONCE = 16  # of all authors: what is read back of a span of 1,000 authors takes 3 MB
_FIRST_STEPS = (1 << _STEPS_AT_ONCE) - 1


class Ledger:
    """Holds the valid envelopes of one run, at most two different ones per slot.

    With an archive the ledger keeps only the latest records in memory, and knows by author and span which others exist.
    It gives the same answers with and without an archive.
    """

    def __init__(
        self,
        manifest: Manifest,
        archive: Archive | None = None,
        *,
        in_memory_max: int = limits.RECORDS_IN_MEMORY_MAX,
    ) -> None:
        """Create an empty ledger.

        ``archive``: gives back the accepted records, which its owner has stored; None: all stay in memory.
        ``in_memory_max``: records kept in memory when the archive gives the others back.

        Every method that looks at records raises StorageDamagedError when one that it needs cannot be read back.
        """
        self.codec = EnvelopeCodec(manifest)
        self.roster = Roster(manifest)
        self._manifest = manifest
        self._spans: dict[int, Span] = {}
        self._root: Digest | None = None  # None after a change
        self._highest: dict[Author, int] = {}
        self._archive = ReadBack(archive) if archive else None
        self._in_memory_max = self._forget_at = in_memory_max
        self._in_memory: deque[tuple[int, Author, int]] = deque()  # span, author, offset; with an archive, oldest first
        self.updates = 0
        self.void_slots = 0

    def statistics(self) -> LedgerStatistics:
        """Return how much the ledger holds now."""
        return LedgerStatistics(
            updates=self.updates,
            void_slots=self.void_slots,
            authors=len(self._highest),
            payload_bytes=self.updates * self.codec.record_bytes,
        )

    # --- the door -----------------------------------------------------------------------------------------

    def add(self, record: bytes, *, horizon_step: int | None = None) -> Outcome:
        """Accept one record, with the cheapest checks first.

        Args:
            record: bytes from a peer, a file or this node itself.
            horizon_step: last step acceptable at this moment; None: no such bound.

        Raises:
            Reject: no honest node can have made the record. The ledger is unchanged.
            Ignore: the record cannot be used now. The ledger is unchanged.
        """
        envelope = self.codec.decode_untrusted(record)
        held = self._held(envelope)
        self.roster.check_counts(envelope.author, envelope.step)
        # [IGNORE] SPEC 7.3: too far ahead of the frontier; anti-entropy brings it when the frontier has come near.
        if horizon_step is not None and held is None and envelope.step > horizon_step:
            raise Ignore(IgnoreReason.TOO_EARLY, f"step {envelope.step} is beyond {horizon_step}")
        # [IGNORE] SPEC 7.3: the author table is full.
        if not self.has_room_for(envelope.author):
            raise Ignore(IgnoreReason.AUTHORS_FULL, f"the run has {self._manifest.authors_max} authors already")
        self.codec.check_signed(envelope)
        self._put(envelope, held)
        if held is None:
            self.updates += 1
            return Accepted(envelope=envelope)
        self.updates -= 1
        self.void_slots += 1
        return Voided(first=self.codec.decode_untrusted(held), second=envelope)

    def holds(self, record: bytes) -> bool:
        """Return whether exactly this record counts in its slot: a short way to ALREADY_HELD for a flood's copies."""
        span, offset = divmod(step_of(record), limits.SPAN_STEPS)
        bucket = self._bucket(span, Author(record[:KEY_BYTES]))
        return bucket is not None and bucket.get(offset) == record

    def _held(self, envelope: Envelope) -> bytes | None:
        """Return the record that counts in the slot, if any. Raises Ignore if it is void or has the same payload."""
        span, offset = divmod(envelope.step, limits.SPAN_STEPS)
        bucket = self._bucket(span, envelope.author)
        if bucket and bucket.void >> offset & 1:
            # [IGNORE] SPEC 7.2: a void slot stays void; further versions change nothing.
            raise Ignore(IgnoreReason.SLOT_VOID, f"step {envelope.step} of {envelope.author.hex()[:16]} is void")
        slot = bucket.get(offset) if bucket else None
        assert not isinstance(slot, tuple)
        if slot is not None and slot[:-SIGNATURE_BYTES] == envelope.payload:
            # [IGNORE] SPEC 7.1: equal payloads are the same update, with any signature bytes.
            raise Ignore(IgnoreReason.ALREADY_HELD, f"step {envelope.step} of {envelope.author.hex()[:16]} is held")
        return slot

    def _put(self, envelope: Envelope, held: bytes | None) -> None:
        span, offset = divmod(envelope.step, limits.SPAN_STEPS)
        if span not in self._spans:
            self._spans[span] = Span(span, self._archive)
        self._spans[span].put(envelope.author, offset, envelope.record if held is None else (held, envelope.record))
        self._root = None
        if envelope.step > self._highest.get(envelope.author, -1):
            self._highest[envelope.author] = envelope.step
        if self._archive:
            self._in_memory.append((span, envelope.author, offset))
            if len(self._in_memory) > self._forget_at:
                self._forget_older_half()

    def _forget_older_half(self) -> None:
        """Drop the older half of the records from memory; those that the archive does not give back stay queued."""
        older: dict[tuple[int, Author], list[int]] = {}
        for _ in range((len(self._in_memory) + 1) // 2):
            span, author, offset = self._in_memory.popleft()
            older.setdefault((span, author), []).append(offset)
        for (span, author), offsets in older.items():
            bucket = self._bucket(span, author)
            if bucket is None:
                continue  # its author has been excluded since
            self._in_memory.extend((span, author, offset) for offset in bucket.forget(offsets))
        # If the archive gave little back, gather enough new records before the next try.
        self._forget_at = max(self._in_memory_max, len(self._in_memory) + self._in_memory_max // 2)

    # --- statements ---------------------------------------------------------------------------------------

    def add_statement(self, data: bytes) -> tuple[Statement, list[Slot]]:
        """Accept a statement; return it with the content of the slots that it emptied.

        Raises Reject or Ignore like :meth:`Roster.add`.
        """
        statement = self.roster.add(data)
        self._root = None
        authors = {each.author for each in self.roster.held(statement.key) if each.author}
        return statement, [slot for author in sorted(authors) for slot in self._drop_what_counts_no_more(author)]

    def _drop_what_counts_no_more(self, author: Author) -> list[Slot]:
        first = self.roster.counts_until(author)
        if self.highest_step(author) < first:
            return []
        dropped: list[Slot] = []
        for number in sorted(self._spans):
            span_start = number * limits.SPAN_STEPS
            if span_start + limits.SPAN_STEPS > first:
                dropped += self._spans[number].drop_from(author, max(0, first - span_start))
        self._spans = {number: span for number, span in self._spans.items() if not span.is_empty}
        valid = sum(isinstance(slot, bytes) for slot in dropped)
        self.updates -= valid
        self.void_slots -= len(dropped) - valid
        held = [(number, bucket) for number, span in self._spans.items() if (bucket := span.get(author))]
        if held:
            number, bucket = max(held, key=itemgetter(0))
            self._highest[author] = number * limits.SPAN_STEPS + bucket.held.bit_length() - 1
        else:
            self._highest.pop(author, None)
        return dropped

    def counts(self, record: bytes) -> bool:
        """Return whether an accepted record still counts according to the statements."""
        envelope = self.codec.decode_untrusted(record)
        return envelope.step < self.roster.counts_until(envelope.author)

    # --- what is held -------------------------------------------------------------------------------------

    @property
    def authors_max(self) -> int:
        """Return how many authors the run may have."""
        return self._manifest.authors_max

    def has_room_for(self, author: Author) -> bool:
        """Return whether the author table holds ``author`` or has room for it."""
        return author in self._highest or len(self._highest) < self._manifest.authors_max

    def authors(self) -> dict[Author, int]:
        """Return the highest step held of each author, void slots included."""
        return dict(self._highest)

    def highest_step(self, author: Author) -> int:
        """Return the highest step held of ``author``, -1 when nothing is held."""
        return self._highest.get(author, -1)

    def envelopes(self, *, from_step: int = 0) -> Iterator[Envelope]:
        """Yield every envelope that counts, by (step, author), from ``from_step`` on (a multiple of SPAN_STEPS)."""
        for slot in self._slots_by_step(from_step // limits.SPAN_STEPS):
            if isinstance(slot, bytes):
                yield self.codec.decode_untrusted(slot)

    def is_void(self, author: Author, step: int) -> bool:
        """Return whether this slot holds two payloads."""
        span, offset = divmod(step, limits.SPAN_STEPS)
        bucket = self._bucket(span, author)
        return bucket is not None and bool(bucket.void >> offset & 1)

    def first_envelopes(self) -> Iterator[Envelope]:
        """Yield the first envelope of every slot held, by (step, author); of a void slot, the one that once counted."""
        for slot in self._slots_by_step():
            yield self.codec.decode_untrusted(records_of(slot)[0])

    def first_of(self, author: Author, steps: range) -> list[Envelope]:
        """Return the first envelope of every slot held of one author in these steps, by step."""
        spans = range(max(0, steps.start) // limits.SPAN_STEPS, -(-steps.stop // limits.SPAN_STEPS))
        buckets = [bucket for span in spans if (bucket := self._bucket(span, author))]
        slots = [slot for bucket in buckets for _, slot in bucket.by_step(bucket.held)]
        envelopes = (self.codec.decode_untrusted(records_of(slot)[0]) for slot in slots)
        return [envelope for envelope in envelopes if envelope.step in steps]

    def ordered_records(self) -> Iterator[bytes]:
        """Yield every record held, both of a void slot, by step and then by bytes (which begin with the author)."""
        for slot in self._slots_by_step():
            yield from sorted(records_of(slot))

    def _slots_by_step(self, first_span: int = 0) -> Iterator[Slot]:
        """Yield the slots held by (step, author), reading back a few steps of all authors at a time."""
        for span in sorted(span for span in self._spans if span >= first_span):
            for start in range(0, limits.SPAN_STEPS, _STEPS_AT_ONCE):
                steps = _FIRST_STEPS << start
                found = [
                    (offset, author, slot)
                    for author, bucket in self._spans[span].buckets()
                    for offset, slot in bucket.by_step(steps)
                ]
                yield from map(itemgetter(2), sorted(found, key=itemgetter(0, 1)))

    def records(self, span: int, author: Author, steps: bytes) -> Iterator[bytes]:
        """Yield the records of the slots in the bitmap ``steps``, by step; both records of a void slot."""
        bucket = self._bucket(span, author)
        for _, slot in bucket.by_step(int.from_bytes(steps, "little")) if bucket else ():
            yield from records_of(slot)

    def spans(self) -> list[int]:
        """Return the spans that hold anything, ascending."""
        return sorted(self._spans)

    def authors_in(self, span: int) -> list[Author]:
        """Return the authors of whom ``span`` holds anything, in no particular order."""
        return [author for author, _ in self._spans[span].buckets()] if span in self._spans else []

    def counted(self, author: Author, steps: range) -> list[bytes]:
        """Return the records of ``author`` that count in these steps, which must lie in one span."""
        span, offset = divmod(steps.start, limits.SPAN_STEPS)
        bucket = self._bucket(span, author)
        slots = bucket.by_step(bucket.valid & ((1 << len(steps)) - 1) << offset) if bucket else []
        return [slot for _, slot in slots if isinstance(slot, bytes)]

    # --- digests ------------------------------------------------------------------------------------------

    def root(self) -> Digest:
        """Return the ledger digest: equal roots mean equal sets of updates and of statements (SPEC 7.5)."""
        if self._root is None:
            fields = [part for span, digest in self.span_digests() for part in (u32(span), digest)]
            statements = [self.roster.digest()] if len(self.roster) else []
            self._root = hash_fields("sfnode/ledger/1", self._manifest.run_id, *fields, *statements)
        return self._root

    def digest_before(self, step: int) -> Digest:
        """Return the digest of the slots below ``step``, a multiple of SPAN_STEPS, without statements (SPEC 9.5)."""
        digests = [(span, digest) for span, digest in self.span_digests() if span * limits.SPAN_STEPS < step]
        fields = [part for span, digest in digests for part in (u32(span), digest)]
        return hash_fields("sfnode/before/1", self._manifest.run_id, u32(step), *fields)

    def slots_before(self, step: int) -> int:
        """Return how many slots hold anything below ``step``, a multiple of SPAN_STEPS."""
        spans = [span for number, span in self._spans.items() if number * limits.SPAN_STEPS < step]
        return sum(bucket.held.bit_count() for span in spans for _, bucket in span.buckets())

    def span_digests(self) -> list[tuple[int, bytes]]:
        """Return (span, 16-byte digest) of every span that holds anything, ascending."""
        return [(span, self._spans[span].digest()) for span in sorted(self._spans)]

    def shard_digests(self, span: int) -> list[tuple[int, bytes]]:
        """Return (shard, 16-byte digest) of every shard of ``span`` that holds anything, ascending."""
        return self._spans[span].shard_digests() if span in self._spans else []

    def holdings(self, span: int, shards: frozenset[int], after: bytes, count: int) -> list[AuthorHoldings]:
        """Return the holdings of the first ``count`` authors after ``after`` in the named shards of ``span``."""
        listed = self._spans[span].buckets_of(shards) if span in self._spans else []
        later = ((author, bucket) for author, bucket in listed if author > after)
        return [holdings_in(author, bucket) for author, bucket in islice(later, count)]

    def holdings_of(self, span: int, author: Author) -> AuthorHoldings:
        """Return the holdings of one author in one span, with empty bitmaps when nothing is held."""
        return holdings_in(author, self._bucket(span, author) or Bucket(span, author))

    def digest_within(self, span: int, author: Author, steps: bytes) -> bytes:
        """Return the digest that :meth:`holdings_of` would give if only the slots in the bitmap were held."""
        return (self._bucket(span, author) or Bucket(span, author)).digest_within(int.from_bytes(steps, "little"))

    def payload_hashes(self, span: int, author: Author) -> dict[int, bytes]:
        """Return the first 8 bytes of the payload hash of each slot that counts, by step, ascending."""
        bucket = self._bucket(span, author)
        first = span * limits.SPAN_STEPS
        slots = bucket.by_step(bucket.valid) if bucket else []
        return {first + offset: payload_hash(slot) for offset, slot in slots if isinstance(slot, bytes)}

    def _bucket(self, span: int, author: Author) -> Bucket | None:
        return self._spans[span].get(author) if span in self._spans else None
