"""A replica: the ledger and the model state it implies. Live nodes, catch-up and offline replay all run this code."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress

from protocol.coefficients import Coefficients
from protocol.envelope import Envelope
from protocol.errors import Ignore
from protocol.hashing import Author, Digest
from protocol.keys import KEY_BYTES
from protocol.ledger import Accepted, Ledger, Outcome
from protocol.manifest import Manifest
from protocol.statements import Statement


class Replica:
    """The model as a function of sets: each accepted envelope is summed once, each voided or excluded one taken out."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.ledger = Ledger(manifest)
        self._coefficients = Coefficients(manifest)
        # Bytes that the ledger holds anyway, and not envelopes: a joiner waits with many.
        self._to_add: deque[bytes] = deque()
        self._to_remove: deque[bytes] = deque()
        self._aside: dict[Author, list[bytes]] = {}  # genuine records of authors who are not admitted any more

    def add(self, record: bytes, *, horizon_step: int | None = None) -> Outcome:
        """Take one record in; raises Reject or Ignore like :meth:`Ledger.add`."""
        outcome = self.ledger.add(record, horizon_step=horizon_step)
        if isinstance(outcome, Accepted):
            self._to_add.append(outcome.envelope.record)
        else:
            self._to_remove.append(outcome.first.record)
        return outcome

    def add_statement(self, data: bytes) -> Statement:
        """Take a statement in, and out of the sum what does not count by it; raises Reject or Ignore.

        An exclusion is for good. Whoever is not admitted only because others have claimed its token may yet be
        admitted: its records are kept for that case.
        """
        roster = self.ledger.roster
        statement, slots = self.ledger.add_statement(data)
        self._to_remove.extend(slot for slot in slots if isinstance(slot, bytes))
        for record in (record for slot in slots for record in (slot if isinstance(slot, tuple) else (slot,))):
            author = Author(record[:KEY_BYTES])
            if not roster.is_admitted(author):
                self._aside.setdefault(author, []).append(record)
        if roster.is_admitted(statement.author):
            self._bring_back(self._aside.pop(statement.author, ()))
        return statement

    def set_aside(self, record: bytes) -> None:
        """Keep a stored record of an author who is not admitted, in case it comes to be. Raises Reject."""
        envelope = self.ledger.codec.decode_untrusted(record)
        self.ledger.codec.check_signed(envelope)
        self._aside.setdefault(envelope.author, []).append(record)

    def _bring_back(self, records: Iterable[bytes]) -> None:
        for record in records:
            with suppress(Ignore):  # excluded meanwhile, or the author table is full
                self.add(record)

    def coefficients(self) -> Coefficients:
        """The state with every update in. Sums what came since the last call, in one batch."""
        self.sum_some(self.unsummed)
        return self._coefficients

    @property
    def unsummed(self) -> int:
        """Updates taken in, or out, but not yet summed into the coefficients."""
        return len(self._to_add) + len(self._to_remove)

    def sum_some(self, count: int) -> None:
        """Sum at most ``count`` waiting updates, so that catching up never blocks its caller for long."""
        added = [self._to_add.popleft() for _ in range(min(count, len(self._to_add)))]
        # Only once all are added: nothing is taken out that is not in.
        removed = [self._to_remove.popleft() for _ in range(min(count - len(added), len(self._to_remove)))]
        if added:
            self._coefficients.add(self._decoded(added))
        if removed:
            self._coefficients.remove(self._decoded(removed))

    def state_digest(self) -> Digest:
        """Digest of the whole model state (SPEC 7.4)."""
        return self.coefficients().digest()

    def replayed_digest(self) -> Digest:
        """The state digest computed anew from the ledger alone: what :meth:`state_digest` must equal."""
        fresh = Coefficients(self.manifest)
        fresh.add(self.ledger.envelopes())
        return fresh.digest()

    def renewals_needed(self) -> list[str]:
        """SHA-256 of every renewed basis in whose epochs something is held, in the order of their first epochs."""
        method = self.manifest.method
        last = max(self.ledger.authors().values(), default=0) // method.epoch_steps
        named = [sha256 for epoch, sha256 in self.ledger.roster.renewals().items() if epoch <= last]
        return list(dict.fromkeys(sha256 for sha256 in named if sha256 != method.basis_sha256))

    def _decoded(self, records: Iterable[bytes]) -> Iterable[Envelope]:
        return map(self.ledger.codec.decode_untrusted, records)
