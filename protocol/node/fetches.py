"""Decides which file a node asks its neighbours for now, and when to ask again after no neighbour had it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

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
