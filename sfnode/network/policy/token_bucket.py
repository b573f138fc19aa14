"""Token buckets: what somebody may spend grows with time up to a burst, and may be owed. Pure: no clock.

Times ``now_s`` are of a clock that only goes forward; the unit is the caller's choice.
"""

from __future__ import annotations


class TokenBucket:
    """Full at first."""

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
        self._level = self.level(rate_per_s, now_s) - cost
        self.updated_s = now_s
        return max(0.0, -self._level / rate_per_s)

    def level(self, rate_per_s: float, now_s: float) -> float:
        """What may be spent now; below 0: owed."""
        return min(self._level + (now_s - self.updated_s) * rate_per_s, self._burst)


class TokenBuckets:
    """Buckets that are all alike, by the name of whoever spends. Full ones are forgotten."""

    def __init__(self, burst: float, rate_per_s: float) -> None:
        self._burst = burst
        self._rate_per_s = rate_per_s
        self._buckets: dict[str, TokenBucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, name: str, now_s: float, *, wait_s_max: float) -> float | None:
        """Spend one token; returns for how long to wait. None, and nothing is spent, when that would be too long."""
        self._forget_full(now_s)
        bucket = self._buckets.setdefault(name, TokenBucket(self._burst, now_s))
        if bucket.level(self._rate_per_s, now_s) - 1 < -wait_s_max * self._rate_per_s:
            return None
        return bucket.take(1, self._rate_per_s, now_s)

    def _forget_full(self, now_s: float) -> None:
        full = [name for name, it in self._buckets.items() if it.level(self._rate_per_s, now_s) >= self._burst]
        for name in full:
            del self._buckets[name]
