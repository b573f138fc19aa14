"""A replica: the ledger and the model state it implies. Live nodes, catch-up and offline replay all run this code."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from protocol.coefficients import Coefficients
from protocol.envelope import Envelope
from protocol.hashing import Digest
from protocol.ledger import Accepted, Ledger, Outcome
from protocol.manifest import Manifest


class Replica:
    """The model as a function of a set: every accepted envelope is summed once, every voided one taken out."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.ledger = Ledger(manifest)
        self._coefficients = Coefficients(manifest)
        # Bytes that the ledger holds anyway, and not envelopes: a joiner waits with many.
        self._to_add: deque[bytes] = deque()
        self._to_remove: list[bytes] = []

    def add(self, record: bytes, *, horizon_step: int | None = None) -> Outcome:
        """Take one record in; raises Reject or Ignore like :meth:`Ledger.add`."""
        outcome = self.ledger.add(record, horizon_step=horizon_step)
        if isinstance(outcome, Accepted):
            self._to_add.append(outcome.envelope.record)
        else:
            self._to_remove.append(outcome.first.record)
        return outcome

    def coefficients(self) -> Coefficients:
        """The state with every update in. Sums what came since the last call, in one batch."""
        self.sum_some(len(self._to_add))
        if self._to_remove:
            self._coefficients.remove(self._decoded(self._to_remove))
            self._to_remove = []
        return self._coefficients

    @property
    def unsummed(self) -> int:
        """Updates taken in but not yet summed into the coefficients."""
        return len(self._to_add) + len(self._to_remove)

    def sum_some(self, count: int) -> None:
        """Sum at most ``count`` waiting updates, so that catching up never blocks its caller for long."""
        batch = [self._to_add.popleft() for _ in range(min(count, len(self._to_add)))]
        if batch:
            self._coefficients.add(self._decoded(batch))

    def state_digest(self) -> Digest:
        """Digest of the whole model state (SPEC 7.4)."""
        return self.coefficients().digest()

    def replayed_digest(self) -> Digest:
        """The state digest computed anew from the ledger alone: what :meth:`state_digest` must equal."""
        fresh = Coefficients(self.manifest)
        fresh.add(self.ledger.envelopes())
        return fresh.digest()

    def _decoded(self, records: Iterable[bytes]) -> Iterable[Envelope]:
        return map(self.ledger.codec.decode_untrusted, records)
