"""Measure the recent rate of a growing number, and whether a node that catches up is fast enough.

And keep a series of losses that stays short in a long run.
"""

from collections import deque
from dataclasses import dataclass

from sfnode.status import LossPoint, Status

_JUMP_ROUNDS = 8  # a run's messages come in bursts of fewer rounds
_JUMP_PACES = 4.0  # times what the pace lets expect since the last look
_POINTS_MAX = 128  # twice the width of a sparkline; ten bytes a point in the file
WINDOW_S = 60.0  # of catching up: a report for each in which the gap has not shrunk


class RecentRate:
    """Measures the growth per second of a number over the last ``window_s`` seconds."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, float]] = deque()

    def take(self, now_s: float, value: float) -> float | None:
        """Add a value and return the rate; None until there are two. A value that falls starts a new window."""
        if self._seen and value < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now_s, value))
        # Keep one look from before the window, so that the rate covers all of it.
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - self._window_s:
            self._seen.popleft()
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else None


class StepRate(RecentRate):
    """Measures the steps per second of a run, as long as it goes on: what is caught up is no pace.

    Args:
        round_steps: steps of one message.
    """

    def __init__(self, window_s: float, round_steps: int = 1) -> None:
        super().__init__(window_s)
        self._jump_steps = _JUMP_ROUNDS * round_steps

    def of(self, now_s: float, step: int, status: Status, *, is_live: bool) -> float | None:
        """Add the step that the run has reached at ``now_s``, and return the rate; None while the node catches up.

        ``is_live``: the node has compared all that it holds with a neighbour. One that contributes has no rate before
        its first own step.
        """
        is_new = not status.node.own_updates if status.may_contribute else not is_live
        if is_new or status.is_catching_up or self._is_jump(now_s, step):
            self._seen.clear()
        if is_new or status.is_catching_up:
            return None
        return self.take(now_s, step)

    def _is_jump(self, now_s: float, step: int) -> bool:
        """Return whether the step rises far beyond the pace: the machine slept, or the line was down."""
        if len(self._seen) < 2:
            return False
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        usual = (last - first) / (last_s - first_s) * (now_s - last_s)
        return step - last > self._jump_steps + _JUMP_PACES * usual


class LossSeries:
    """Keeps losses by step. When full, it merges pairs, so that each point is the mean of equally many losses."""

    def __init__(self) -> None:
        self._points: list[LossPoint] = []
        self._pending: list[float] = []
        self._losses_per_point = 1

    @property
    def points(self) -> tuple[LossPoint, ...]:
        """Return fewer than `_POINTS_MAX` points, by step."""
        return tuple(self._points)

    def take(self, step: int, loss: float) -> None:
        self._pending.append(loss)
        if len(self._pending) < self._losses_per_point:
            return
        self._points.append(LossPoint(step=step, loss=sum(self._pending) / len(self._pending)))
        self._pending.clear()
        if len(self._points) >= _POINTS_MAX:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [LossPoint(step=b.step, loss=(a.loss + b.loss) / 2) for a, b in pairs]
            self._losses_per_point *= 2


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
