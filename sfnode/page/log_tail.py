"""The last lines of what a node has said, for those who look at its page."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from sfnode.reporter import printable

_LINES_MAX: Final = 100
_LENGTH_MAX: Final = 400  # characters of a line; a peer's text may be long

LogLine = tuple[float, int, str]  # seconds since 1970, level of Python's ``logging``, text


class LogTail:
    """A reporter tells it of every event; the oldest lines go."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=_LINES_MAX)

    def take(self, level: int, lines: tuple[str, ...]) -> None:
        """Keep what was said just now."""
        self._lines.extend((round(time.time(), 1), level, printable(line)[:_LENGTH_MAX]) for line in lines)

    @property
    def lines(self) -> list[LogLine]:
        """Oldest first."""
        return list(self._lines)
