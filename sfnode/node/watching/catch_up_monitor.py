"""Watch whether a node that catches up is fast enough for its run."""

from dataclasses import dataclass

WINDOW_S = 60.0  # of catching up: a report for each in which the gap has not shrunk


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
    """Compares what a node that catches up holds with what it lacks."""

    def __init__(self) -> None:
        self._start: tuple[float, int, int] | None = None  # the arguments of the look that began the window

    def look(self, now_s: float, held: int, wanted: int) -> Outrun | None:
        """Return a report once for each window of catching up in which the gap has not shrunk; else None.

        ``wanted``: updates that the neighbours report; 0: none is missing.
        """
        if wanted <= held:
            self._start = None
            return None
        start_s, held_before, wanted_before = self._start = self._start or (now_s, held, wanted)
        seconds = now_s - start_s
        if seconds < WINDOW_S:
            return None
        self._start = now_s, held, wanted
        growth, intake = wanted - wanted_before, held - held_before
        if intake > growth or growth == 0:  # no growth: the line is dead, the machine is not slow
            return None
        return Outrun(growth=growth / seconds, intake=intake / seconds, lacking=wanted - held)
