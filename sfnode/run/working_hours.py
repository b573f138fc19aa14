"""The hours at which a node may work, as people write them: "22-7". Pure: no clock."""

import re
from dataclasses import dataclass

from protocol.errors import OperatorError

DAY_MINUTES = 24 * 60
_SPAN = re.compile(r"(\d{1,2})(?::(\d\d))?-(\d{1,2})(?::(\d\d))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingHours:
    """Holds spans of each day.

    Attributes:
        text: as the operator wrote them.
        spans: (from, until) in minutes after midnight; until is exclusive, and less than from if midnight lies between.
    """

    text: str
    spans: tuple[tuple[int, int], ...]

    def covers(self, minute: int) -> bool:
        return any((minute - first) % DAY_MINUTES <= (until - first - 1) % DAY_MINUTES for first, until in self.spans)

    def minutes_until(self, minute: int) -> int:
        """Return the minutes from that minute of the day to the next beginning of a span; 0 within one."""
        return 0 if self.covers(minute) else min((first - minute) % DAY_MINUTES for first, _ in self.spans)


def parse_hours(text: str) -> WorkingHours:
    """Parse a text such as "22-7", "22:30-6:15" or "12-13,22-7". OperatorError."""
    return WorkingHours(text=text, spans=tuple(_span(part.strip(), text) for part in text.split(",")))


def _span(part: str, text: str) -> tuple[int, int]:
    found = _SPAN.fullmatch(part)
    if found is not None:
        hour, minute, until_hour, until_minute = (int(number or 0) for number in found.groups())
        first, until = 60 * hour + minute, 60 * until_hour + until_minute
        if max(minute, until_minute) < 60 and first < DAY_MINUTES and until <= DAY_MINUTES and first != until:
            return first, until
    raise OperatorError(f"--hours {text!r}: write spans of the day such as 22-7, 22:30-6:15 or 12-13,22-7")
