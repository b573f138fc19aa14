"""Keep the last lines of a node's log, for its page."""

import re
import time
from collections import deque

from sfnode.reporter import printable

_LINES_MAX = 100
_LENGTH_MAX = 400  # characters of a line; a peer's text may be long

_SECRET = re.compile(r"\b(invite:|sfnode:)\S+")  # an address of the run may hold an invitation

LogLine = tuple[float, int, str]  # seconds since 1970, level of Python's ``logging``, text


class LogTail:
    """Keeps the newest lines of the log. A reporter passes it every event."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=_LINES_MAX)

    def take(self, level: int, lines: tuple[str, ...]) -> None:
        """Keep new lines, stamped with the current time and without secrets that admit to the run."""
        texts = (_SECRET.sub(r"\1...", printable(line))[:_LENGTH_MAX] for line in lines)
        self._lines.extend((round(time.time(), 1), level, text) for text in texts)

    @property
    def lines(self) -> list[LogLine]:
        """Return the lines that are kept, oldest first."""
        return list(self._lines)
