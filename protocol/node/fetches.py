"""Decides which file a node asks its neighbours for now, and knows which renewed bases are missing (SPEC 9.2.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from protocol.events import Effect, FetchBasis
from protocol.ledger import Roster

_RETRY_MS: Final = 5_000  # until a basis that no neighbour had is asked for again
_NEVER: Final = 1 << 62


class Fetches:
    """Schedules the fetches of one kind of file, by SHA-256: one at a time, so that pending requests are bounded."""

    def __init__(self, retry_ms: int) -> None:
        """Create an empty schedule; ``retry_ms``: rest after a failed fetch."""
        self._retry_ms = retry_ms
        self._asked: str | None = None
        self._due_ms: dict[str, int] = {}  # when each failed file may be asked for again

    def start(self, wanted: Iterable[str], now_ms: int) -> str | None:
        """Return the first of ``wanted`` that may be asked for now; None if there is none or a fetch is in progress."""
        if self._asked is None:
            self._asked = next((sha256 for sha256 in wanted if now_ms >= self._due_ms.get(sha256, 0)), None)
            return self._asked
        return None

    def arrived(self) -> None:
        """Note that the file asked for is here."""
        self._asked = None

    def failed(self, sha256: str, now_ms: int, *, is_lasting: bool) -> None:
        """Note that no neighbour had the file; ``is_lasting``: it came, but can never be used."""
        if sha256 == self._asked:
            self._asked = None
            self._due_ms[sha256] = _NEVER if is_lasting else now_ms + self._retry_ms


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
