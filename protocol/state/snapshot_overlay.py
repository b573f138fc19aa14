"""What a joiner's worker is shown while the ledger is replayed: a snapshot, and the updates that follow it."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.ledger import Accepted, Envelope, Ledger, Outcome
from protocol.run import Manifest
from protocol.state.coefficients import Coefficients
from protocol.state.snapshot import Snapshot


class SnapshotOverlay:
    """Lies over a replica's own coefficients, and touches neither them nor any digest."""

    def __init__(self, manifest: Manifest, snapshot: Snapshot, ledger: Ledger) -> None:
        """``ledger``: what is held now; what comes later is told by :meth:`take`."""
        self.snapshot = snapshot
        self._coefficients = Coefficients(manifest)
        for epoch, flat in snapshot.epochs.items():
            self._coefficients.set_flat(epoch, flat)
        self._to_add = list(ledger.envelopes(from_step=snapshot.step))
        self._to_remove: list[Envelope] = []

    def take(self, outcome: Outcome) -> None:
        """The replica has taken an update in, or voided one. What the snapshot covers is passed over."""
        if isinstance(outcome, Accepted):
            self._to_add += self._later(outcome.envelope)
        else:
            self.remove([outcome.first])

    def remove(self, updates: Iterable[Envelope]) -> None:
        """These updates no longer count."""
        for update in updates:
            self._to_remove += self._later(update)

    def _later(self, update: Envelope) -> list[Envelope]:
        return [update] if update.step >= self.snapshot.step else []

    def coefficients(self) -> Coefficients:
        """The snapshot with all that follows it."""
        self._coefficients.add(self._to_add)
        self._coefficients.remove(self._to_remove)
        self._to_add, self._to_remove = [], []
        return self._coefficients
