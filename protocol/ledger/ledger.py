"""The ledger: the set of valid envelopes of a run, its slots and its digests (SPEC 7).

Records from flood, catch-up and disk all enter through :meth:`Ledger.add`. The ledger's content depends only on the
sets of envelopes and statements, never on the order in which they came.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from protocol import limits
from protocol.crypto import KEY_BYTES, SIGNATURE_BYTES, Author, Digest, hashing
from protocol.errors import Ignore, IgnoreReason
from protocol.ledger.archived_records import Archive, Slot, step_of
from protocol.ledger.envelope import Envelope, EnvelopeCodec
from protocol.ledger.roster import Roster
from protocol.ledger.slot_table import SlotTable
from protocol.ledger.statements import Statement
from protocol.run import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerStatistics:
    """Holds how much a ledger holds. ``payload_bytes``: size of its records, without frames and copies."""

    updates: int
    void_slots: int
    authors: int
    payload_bytes: int


class Ledger:
    """Accepts the valid envelopes of one run, at most two different ones per slot, and the statements of its owner.

    Attributes:
        slots: what is held in them.
    """

    def __init__(
        self, manifest: Manifest, archive: Archive | None = None, *, in_memory_max: int = limits.RECORDS_IN_MEMORY_MAX
    ) -> None:
        """Create an empty ledger.

        ``archive``: gives back the accepted records, which its owner has stored; None: all stay in memory.
        ``in_memory_max``: records kept in memory when the archive gives the others back; fewer where they are large.

        Every method that looks at records raises StorageDamagedError when one that it needs cannot be read back.
        """
        self.codec = EnvelopeCodec(manifest)
        self.roster = Roster(manifest)
        fitting = limits.RECORD_BYTES_IN_MEMORY_MAX // self.codec.record_bytes
        self.slots = SlotTable(manifest.run_id, self.codec, archive, min(in_memory_max, fitting))
        self._run_id, self.authors_max = manifest.run_id, manifest.authors_max
        self._root: Digest | None = None  # None after a change
        self._highest: dict[Author, int] = {}
        self._standing: dict[Author, int] = {}  # those of them whom no exclusion names
        self.updates = 0
        self.void_slots = 0

    def statistics(self) -> LedgerStatistics:
        return LedgerStatistics(
            updates=self.updates,
            void_slots=self.void_slots,
            authors=len(self._highest),
            payload_bytes=self.updates * self.codec.record_bytes,
        )

    # --- the door -----------------------------------------------------------------------------------------

    def add(self, record: bytes, *, horizon_step: int | None = None) -> tuple[Envelope, Envelope | None]:
        """Accept one record, with the cheapest checks first; after an exception the ledger is unchanged.

        Return its envelope. If it is the second payload for its slot, its author equivocated: return the first one,
        too, which no longer counts.

        ``horizon_step``: last step acceptable at this moment; None: no such bound.

        Reject: no honest node can have made the record. Ignore: it cannot be used now.
        """
        envelope = self.codec.decode_untrusted(record)
        held = self._held(envelope)
        self.roster.check_counts(envelope.author, envelope.step)
        # [IGNORE] SPEC 7.3: too far ahead of the frontier; anti-entropy brings it when the frontier has come near.
        if horizon_step is not None and held is None and envelope.step > horizon_step:
            raise Ignore(IgnoreReason.TOO_EARLY, f"step {envelope.step} is beyond {horizon_step}")
        # [IGNORE] SPEC 7.3: the author table is full.
        if not self.has_room_for(envelope.author):
            raise Ignore(IgnoreReason.AUTHORS_FULL, f"the run has {self.authors_max} authors already")
        self.codec.check_signed(envelope)
        self._put(envelope, held)
        if held is None:
            self.updates += 1
            return envelope, None
        self.updates -= 1
        self.void_slots += 1
        return envelope, self.codec.decode_untrusted(held)

    def holds(self, record: bytes) -> bool:
        """Return whether exactly this record counts in its slot: a short way to ALREADY_HELD for a flood's copies."""
        span, offset = divmod(step_of(record), limits.SPAN_STEPS)
        return self.slots.bucket(span, Author(record[:KEY_BYTES])).get(offset) == record

    def _held(self, envelope: Envelope) -> bytes | None:
        """Return the record that counts in the slot, if any. Raises Ignore if it is void or has the same payload."""
        span, offset = divmod(envelope.step, limits.SPAN_STEPS)
        bucket = self.slots.bucket(span, envelope.author)
        if bucket.void >> offset & 1:
            # [IGNORE] SPEC 7.2: a void slot stays void; further versions change nothing.
            raise Ignore(IgnoreReason.SLOT_VOID, f"step {envelope.step} of {envelope.author.hex()[:16]} is void")
        slot = bucket.get(offset)
        assert not isinstance(slot, tuple)
        if slot is not None and slot[:-SIGNATURE_BYTES] == envelope.payload:
            # [IGNORE] SPEC 7.1: equal payloads are the same update, with any signature bytes.
            raise Ignore(IgnoreReason.ALREADY_HELD, f"step {envelope.step} of {envelope.author.hex()[:16]} is held")
        return slot

    def _put(self, envelope: Envelope, held: bytes | None) -> None:
        self.slots.put(envelope, held)
        self._root = None
        if envelope.step > self._highest.get(envelope.author, -1):
            self._highest[envelope.author] = envelope.step
            if self.roster.excluded_from(envelope.author) is None:
                self._standing[envelope.author] = envelope.step

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
        if first <= limits.STEPS_MAX:
            self._standing.pop(author, None)
        if self.highest_step(author) < first:
            return []
        dropped = self.slots.drop_from(author, first)
        valid = sum(isinstance(slot, bytes) for slot in dropped)
        self.updates -= valid
        self.void_slots -= len(dropped) - valid
        self._highest[author] = self.slots.highest_step(author)
        if self._highest[author] < 0:  # no slot is left: the author's place in the table is free
            del self._highest[author]
        return dropped

    def counts(self, record: bytes) -> bool:
        """Return whether an accepted record still counts according to the statements."""
        envelope = self.codec.decode_untrusted(record)
        return envelope.step < self.roster.counts_until(envelope.author)

    # --- what is held -------------------------------------------------------------------------------------

    def has_room_for(self, author: Author) -> bool:
        """Return whether the author table holds ``author`` or has room for it."""
        return author in self._highest or len(self._highest) < self.authors_max

    def authors(self) -> Mapping[Author, int]:
        """Return the highest step held of each author, void slots included: a view, as each message asks for it."""
        return self._highest

    def standing_authors(self) -> Mapping[Author, int]:
        """Return the same for the authors whom no exclusion names: those whom the pace of a run may depend on."""
        return self._standing

    def highest_step(self, author: Author) -> int:
        """Return the highest step held of ``author``, -1 when nothing is held."""
        return self._highest.get(author, -1)

    # --- digests ------------------------------------------------------------------------------------------

    def root(self) -> Digest:
        """Return the ledger digest: equal roots mean equal sets of updates and of statements (SPEC 7.5)."""
        if self._root is None:
            fields = [part for span, digest in self.slots.span_digests() for part in (hashing.u32(span), digest)]
            statements = [self.roster.digest()] if len(self.roster) else []
            self._root = hashing.hash_fields("sfnode/ledger/1", self._run_id, *fields, *statements)
        return self._root
