"""A node's renewed bases: which are here, and which are still to be fetched (SPEC 9.2.5)."""

from __future__ import annotations

from typing import Final

from protocol.events import Effect, FetchBasis
from protocol.ledger import Roster
from protocol.node.fetches import Fetches

_RETRY_MS: Final = 5_000


class BasisFiles:
    """Owned by the node core."""

    def __init__(self, roster: Roster) -> None:
        self.here: frozenset[str] = frozenset()  # SHA-256 of those that are complete on the disk
        self._roster = roster
        self._fetches = Fetches(_RETRY_MS)

    def is_here(self, epoch: int) -> bool:
        """Whether all that the weights of ``epoch`` need is here; the basis that the manifest names always is."""
        return all(sha256 in self.here for first, sha256 in self._roster.renewals().items() if first <= epoch)

    def arrived(self, sha256: str) -> None:
        """The basis is complete on the disk."""
        self.here |= {sha256}
        self._fetches.arrived()

    def failed(self, sha256: str, now_ms: int, *, is_lasting: bool) -> None:
        """The basis could not be fetched: for now, or for good."""
        self._fetches.failed(sha256, now_ms, is_lasting=is_lasting)

    def tick(self, now_ms: int) -> list[Effect]:
        """Ask for the first basis that is missing, in the order of their epochs."""
        first_epochs: dict[str, int] = {}
        for epoch, sha256 in self._roster.renewals().items():
            first_epochs.setdefault(sha256, epoch)
        chosen = self._fetches.start((sha256 for sha256 in first_epochs if sha256 not in self.here), now_ms)
        return [FetchBasis(sha256=chosen, from_epoch=first_epochs[chosen])] if chosen else []
