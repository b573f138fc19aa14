"""Detects that the run grows faster than a node that catches up can take in updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Holds the updates held and those that neighbours report (0: none is missing), at a time in seconds."""

    time: float
    held: int
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outrun:
    """Holds both rates over a window, in updates per second; ``lacking``: missing updates at its end."""

    growth: float
    intake: float
    lacking: int

    def __str__(self) -> str:
        return (
            f"the run gets {self.growth:.0f} updates a second and this machine takes in {self.intake:.0f}: with "
            f"{self.lacking} missing it does not catch up. Free its processor, disk and line, or use a faster machine"
        )


class CatchUpMonitor:
    """Compares successive gaps of a node that catches up."""

    def __init__(self) -> None:
        self._start: Gap | None = None

    def look(self, now: Gap) -> Outrun | None:
        """Return a report once for each window of catching up in which the gap has not shrunk; else None."""
        if now.wanted <= now.held:
            self._start = None
            return None
        start = self._start = self._start or now
        seconds = now.time - start.time
        if seconds < WINDOW_S:
            return None
        self._start = now
        growth, intake = now.wanted - start.wanted, now.held - start.held
        if intake > growth or growth == 0:  # no growth: the line is dead, the machine is not slow
            return None
        return Outrun(growth=growth / seconds, intake=intake / seconds, lacking=now.wanted - now.held)
