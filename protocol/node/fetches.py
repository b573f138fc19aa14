"""Files that a node asks its neighbours for: which one now, and when again after nobody had it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_NEVER: Final = 1 << 62


class Fetches:
    """The fetches of one kind of file, by SHA-256. One file is asked for at a time, so that what waits is bounded."""

    def __init__(self, retry_ms: int) -> None:
        """``retry_ms``: rest after a fetch that failed."""
        self._retry_ms = retry_ms
        self._asked: str | None = None
        self._due_ms: dict[str, int] = {}  # when each of those that failed may be asked for again

    def start(self, wanted: Iterable[str], now_ms: int) -> str | None:
        """The first of ``wanted`` to ask for now, or None. Nothing else is asked for until it arrives or fails."""
        if self._asked is None:
            self._asked = next((sha256 for sha256 in wanted if now_ms >= self._due_ms.get(sha256, 0)), None)
            return self._asked
        return None

    def arrived(self) -> None:
        """What was asked for is here."""
        self._asked = None

    def failed(self, sha256: str, now_ms: int, *, is_lasting: bool) -> None:
        """Nobody had the file; ``is_lasting``: what came can never be used."""
        if sha256 == self._asked:
            self._asked = None
            self._due_ms[sha256] = _NEVER if is_lasting else now_ms + self._retry_ms
