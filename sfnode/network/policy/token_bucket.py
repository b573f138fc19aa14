"""A token bucket: what somebody may spend grows with time up to a burst, and may be owed. Pure: no clock."""

from __future__ import annotations


class TokenBucket:
    """Full at first. Times ``now_s`` are of a clock that only goes forward; the unit is the caller's choice."""

    __slots__ = ("_burst", "_level", "updated_s")

    def __init__(self, burst: float, now_s: float) -> None:
        self.updated_s = now_s
        self._burst = burst
        self._level = burst  # below 0: owed

    def is_full(self, rate_per_s: float, now_s: float) -> bool:
        """Whether so much was earned since the last call that nothing was spent, as it were."""
        return self._level + (now_s - self.updated_s) * rate_per_s >= self._burst

    def take(self, cost: float, rate_per_s: float, now_s: float) -> float:
        """Spend ``cost``, after what was earned since the last call; returns for how long to wait, 0 within the burst.

        ``rate_per_s``: what a second earns, above 0.
        """
        earned = (now_s - self.updated_s) * rate_per_s
        self._level = min(self._level + earned, self._burst) - cost
        self.updated_s = now_s
        return max(0.0, -self._level / rate_per_s)
