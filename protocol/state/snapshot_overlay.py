"""The coefficients for a joiner's worker during the replay: a snapshot and the updates that follow it."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.ledger import Accepted, Envelope, Ledger, Outcome
from protocol.run import Manifest
from protocol.state.coefficients import Coefficients
from protocol.state.snapshot import Snapshot


class SnapshotOverlay:
    """Replaces a replica's coefficients for the worker, and changes neither them nor any digest."""

    def __init__(self, manifest: Manifest, snapshot: Snapshot, ledger: Ledger) -> None:
        """Start from ``snapshot`` and the later updates in ``ledger``; :meth:`take` must be called for new ones."""
        self.snapshot = snapshot
        self._coefficients = Coefficients(manifest)
        for epoch, flat in snapshot.epochs.items():
            self._coefficients.set_flat(epoch, flat)
        self._to_add = list(ledger.slots.envelopes(from_step=snapshot.step))
        self._to_remove: list[Envelope] = []

    def take(self, outcome: Outcome) -> None:
        """Account for an update that the replica accepted or voided, unless the snapshot covers its step."""
        if isinstance(outcome, Accepted):
            self._to_add += self._later(outcome.envelope)
        else:
            self.remove([outcome.first])

    def remove(self, updates: Iterable[Envelope]) -> None:
        """Account for updates that no longer count, unless the snapshot covers their steps."""
        for update in updates:
            self._to_remove += self._later(update)

    def _later(self, update: Envelope) -> list[Envelope]:
        return [update] if update.step >= self.snapshot.step else []

    def coefficients(self) -> Coefficients:
        """Return the coefficients of the snapshot with all updates that follow it."""
        self._coefficients.add(self._to_add)
        self._coefficients.remove(self._to_remove)
        self._to_add, self._to_remove = [], []
        return self._coefficients
