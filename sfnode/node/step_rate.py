"""Measure the recent rate of a growing number, and the pace of a run in steps per second."""

from collections import deque

from sfnode.status import Status

_JUMP_ROUNDS = 8  # a run's messages come in bursts of fewer rounds
_JUMP_PACES = 4.0  # times what the pace lets expect since the last look


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
