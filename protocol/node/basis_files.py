"""A node's renewed bases: which are on its disk, and which are still to be fetched (SPEC 9.2.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocol.events import Effect, FetchBasis
from protocol.ledger import Roster
from protocol.node.fetches import Fetches

_RETRY_MS: Final = 5_000


class BasisFiles:
    """Tracks and requests renewed bases. There may be many: it looks for missing ones only when a renewal comes."""

    def __init__(self, roster: Roster) -> None:
        self.here: frozenset[str] = frozenset()  # SHA-256 of the bases that are complete on the disk
        self._roster = roster
        self._fetches = Fetches(_RETRY_MS)
        self._looked_at: Mapping[int, str] = {}  # the renewals from which the next two were computed
        self._missing: dict[str, int] = {}  # SHA-256 -> first epoch, ascending by epoch
        self._wanted: dict[str, int] = {}  # the missing ones without `_useless`
        self._useless: set[str] = set()

    def is_here(self, epoch: int) -> bool:
        """Return whether all bases that ``epoch`` needs are here; the basis that the manifest names always is."""
        return self.first_missing(epoch) is None

    def first_missing(self, epoch: int) -> str | None:
        """Return the SHA-256 of the first basis that ``epoch`` needs and that is not here, None when all are."""
        sha256, first = next(iter(self._look().items()), ("", epoch + 1))
        return sha256 if first <= epoch else None

    def arrived(self, sha256: str) -> None:
        """Note that the basis is complete on the disk."""
        self.here |= {sha256}
        self._missing.pop(sha256, None)
        self._wanted.pop(sha256, None)
        self._fetches.arrived()

    def failed(self, sha256: str, now_ms: int, *, is_lasting: bool) -> None:
        """Note that the basis could not be fetched now; ``is_lasting``: or ever."""
        self._fetches.failed(sha256, now_ms, is_lasting=is_lasting)
        if is_lasting:
            self._useless.add(sha256)
            self._wanted.pop(sha256, None)

    def tick(self, now_ms: int) -> list[Effect]:
        """Request the missing basis of the earliest epoch, one at a time."""
        self._look()
        chosen = self._fetches.start(self._wanted, now_ms)
        return [FetchBasis(sha256=chosen, from_epoch=self._wanted[chosen])] if chosen else []

    def _look(self) -> dict[str, int]:
        renewals = self._roster.renewals()
        if renewals is not self._looked_at:
            self._looked_at, self._missing = renewals, {}
            for epoch, sha256 in renewals.items():
                if sha256 not in self.here:
                    self._missing.setdefault(sha256, epoch)
            self._wanted = {each: first for each, first in self._missing.items() if each not in self._useless}
        return self._missing
