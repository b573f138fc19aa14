"""Whether a node that catches up comes nearer to the run, or the run grows faster than it can take in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Updates held, and those that the neighbours say they hold (0: nothing is missing), at a time in seconds."""

    time: float
    held: int
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outrun:
    """What both did over a window, in updates per second; ``lacking``: updates at its end."""

    growth: float
    intake: float
    lacking: int

    def __str__(self) -> str:
        return (
            f"the run gets {self.growth:.0f} updates a second and this machine takes in {self.intake:.0f}: with "
            f"{self.lacking} missing it does not catch up. Free its processor, disk and line, or use a faster machine"
        )


class CatchUpMonitor:
    """Looks at the gap now and then."""

    def __init__(self) -> None:
        self._start: Gap | None = None

    def look(self, now: Gap) -> Outrun | None:
        """What to tell the operator: once for each window of catching up in which the gap has not shrunk."""
        if now.wanted <= now.held:
            self._start = None
            return None
        start = self._start = self._start or now
        seconds = now.time - start.time
        if seconds < WINDOW_S:
            return None
        self._start = now
        growth, intake = now.wanted - start.wanted, now.held - start.held
        if intake > growth or growth == 0:  # where nobody tells of more, the line is dead, not the machine slow
            return None
        return Outrun(growth=growth / seconds, intake=intake / seconds, lacking=now.wanted - now.held)
