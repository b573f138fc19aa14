"""The table of a ledger's slots: what each of them holds, in memory or in the archive, and its digests (SPEC 7.5)."""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter

from protocol import limits
from protocol.crypto import Author, Digest, hashing
from protocol.ledger.archived_records import Archive, ReadBack, Slot, records_of
from protocol.ledger.digest_buckets import Bucket, Span, holdings_in, payload_hash
from protocol.ledger.envelope import Envelope, EnvelopeCodec
from protocol.wire import AuthorHoldings

_STEPS_AT_ONCE = 16  # of all authors: what is read back of a span of 1,000 authors takes 3 MB
_FIRST_STEPS = (1 << _STEPS_AT_ONCE) - 1


class SlotTable:
    """Holds at most two records per slot, by span and author, and gives what neighbours compare and request.

    With an archive it keeps only the latest records in memory, and knows by author and span which others exist.
    It gives the same answers with and without an archive.
    """

    def __init__(self, run_id: bytes, codec: EnvelopeCodec, archive: Archive | None, in_memory_max: int) -> None:
        self._run_id = run_id
        self._codec = codec
        self._spans: dict[int, Span] = {}
        self._archive = ReadBack(archive) if archive else None
        self._in_memory_max = self._forget_at = in_memory_max
        self._in_memory: deque[tuple[int, Author, int]] = deque()  # span, author, offset; with an archive, oldest first

    # --- changes ------------------------------------------------------------------------------------------

    def put(self, envelope: Envelope, held: bytes | None) -> None:
        """Fill the envelope's slot, or void it if ``held`` counted there."""
        span, offset = divmod(envelope.step, limits.SPAN_STEPS)
        if span not in self._spans:
            self._spans[span] = Span(span, self._archive)
        self._spans[span].put(envelope.author, offset, envelope.record if held is None else (held, envelope.record))
        if self._archive:
            self._in_memory.append((span, envelope.author, offset))
            if len(self._in_memory) > self._forget_at:
                self._forget_older_half()

    def drop_from(self, author: Author, first: int) -> list[Slot]:
        """Empty the author's slots from step ``first`` on and return their content by step."""
        dropped: list[Slot] = []
        for number in sorted(self._spans):
            span_start = number * limits.SPAN_STEPS
            if span_start + limits.SPAN_STEPS > first:
                dropped += self._spans[number].drop_from(author, max(0, first - span_start))
        self._spans = {number: span for number, span in self._spans.items() if not span.is_empty}
        return dropped

    def _forget_older_half(self) -> None:
        """Drop the older half of the records from memory; those that the archive does not give back stay queued."""
        older: dict[tuple[int, Author], list[int]] = {}
        for _ in range((len(self._in_memory) + 1) // 2):
            span, author, offset = self._in_memory.popleft()
            older.setdefault((span, author), []).append(offset)
        for (span, author), offsets in older.items():
            bucket = self.bucket(span, author)
            if bucket.held:  # else its author has been excluded since
                self._in_memory.extend((span, author, offset) for offset in bucket.forget(offsets))
        # If the archive gave little back, gather enough new records before the next try.
        self._forget_at = max(self._in_memory_max, len(self._in_memory) + self._in_memory_max // 2)

    # --- what is held -------------------------------------------------------------------------------------

    def bucket(self, span: int, author: Author) -> Bucket:
        """Return the author's slots in one span, to be read only; an empty bucket when nothing is held."""
        found = self._spans[span].get(author) if span in self._spans else None
        return found or Bucket(span, author)

    def highest_step(self, author: Author) -> int:
        """Return the highest step held of ``author``, -1 when nothing is held."""
        for span in sorted(self._spans, reverse=True):
            if held := self.bucket(span, author).held:
                return span * limits.SPAN_STEPS + held.bit_length() - 1
        return -1

    def envelopes(self, *, from_step: int = 0) -> Iterator[Envelope]:
        """Yield every envelope that counts, by (step, author), from ``from_step`` on (a multiple of SPAN_STEPS)."""
        for slot in self._slots_by_step(from_step // limits.SPAN_STEPS):
            if isinstance(slot, bytes):
                yield self._codec.decode_untrusted(slot)

    def is_void(self, author: Author, step: int) -> bool:
        span, offset = divmod(step, limits.SPAN_STEPS)
        return bool(self.bucket(span, author).void >> offset & 1)

    def first_envelopes(self) -> Iterator[Envelope]:
        """Yield the first envelope of every slot held, by (step, author); of a void slot, the one that once counted."""
        for slot in self._slots_by_step():
            yield self._codec.decode_untrusted(records_of(slot)[0])

    def first_of(self, author: Author, steps: range) -> list[Envelope]:
        """Return the first envelope of every slot held of one author in these steps, by step."""
        return [self._codec.decode_untrusted(records_of(slot)[0]) for slot in self._slots_of(author, steps)]

    def counted(self, author: Author, steps: range) -> Iterator[Envelope]:
        """Yield the envelopes of one author that count in these steps, by step."""
        for slot in self._slots_of(author, steps):
            if isinstance(slot, bytes):
                yield self._codec.decode_untrusted(slot)

    def _slots_of(self, author: Author, steps: range) -> Iterator[Slot]:
        """Yield the slots held of one author in these steps, by step."""
        start = max(0, steps.start)
        for span in range(start // limits.SPAN_STEPS, -(-steps.stop // limits.SPAN_STEPS)) if steps else ():
            first = span * limits.SPAN_STEPS
            wanted = (1 << min(steps.stop - first, limits.SPAN_STEPS)) - (1 << max(0, start - first))
            yield from (slot for _, slot in self.bucket(span, author).by_step(wanted))

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
        for _, slot in self.bucket(span, author).by_step(int.from_bytes(steps, "little")):
            yield from records_of(slot)

    def spans(self) -> list[int]:
        """Return the spans that hold anything, ascending."""
        return sorted(self._spans)

    def authors_in(self, span: int) -> list[Author]:
        """Return the authors of whom ``span`` holds anything, in no particular order."""
        return [author for author, _ in self._spans[span].buckets()] if span in self._spans else []

    # --- digests ------------------------------------------------------------------------------------------

    def digest_before(self, step: int) -> Digest:
        """Return the digest of the slots below ``step``, a multiple of SPAN_STEPS, without statements (SPEC 9.5)."""
        digests = [(span, digest) for span, digest in self.span_digests() if span * limits.SPAN_STEPS < step]
        fields = [part for span, digest in digests for part in (hashing.u32(span), digest)]
        return hashing.hash_fields("sfnode/before/1", self._run_id, hashing.u32(step), *fields)

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

    def payload_hashes(self, span: int, author: Author) -> dict[int, bytes]:
        """Return the first 8 bytes of the payload hash of each slot that counts, by step, ascending."""
        bucket, first = self.bucket(span, author), span * limits.SPAN_STEPS
        slots = bucket.by_step(bucket.valid)
        return {first + offset: payload_hash(slot) for offset, slot in slots if isinstance(slot, bytes)}
