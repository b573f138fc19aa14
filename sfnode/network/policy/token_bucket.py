"""Token buckets: a level that grows with time up to a burst, and may fall below 0. Pure: no clock.

``now_s`` is the time of a monotonic clock; the caller chooses the unit of the tokens.
"""


class TokenBucket:
    """One bucket, full at first."""

    __slots__ = ("_burst", "_level", "updated_s")

    def __init__(self, burst: float, now_s: float) -> None:
        self.updated_s = now_s
        self._burst = burst
        self._level = burst  # below 0: tokens owed

    def is_full(self, rate_per_s: float, now_s: float) -> bool:
        return self.level(rate_per_s, now_s) >= self._burst

    def take(self, cost: float, rate_per_s: float, now_s: float) -> float:
        """Add the tokens earned since the last call and spend ``cost``; return the seconds to wait, 0 within the burst.

        ``rate_per_s``: tokens earned per second, above 0.
        """
        self._level = self.level(rate_per_s, now_s) - cost
        self.updated_s = now_s
        return max(0.0, -self._level / rate_per_s)

    def level(self, rate_per_s: float, now_s: float) -> float:
        """Return the tokens that may be spent now; below 0 if some are owed."""
        return min(self._level + (now_s - self.updated_s) * rate_per_s, self._burst)


class TokenBuckets:
    """Equal buckets by the name of the spender. Full buckets are forgotten."""

    def __init__(self, burst: float, rate_per_s: float) -> None:
        self._burst = burst
        self._rate_per_s = rate_per_s
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, name: str, now_s: float, *, wait_s_max: float) -> float | None:
        """Spend one token and return the seconds to wait; spend nothing and return None above ``wait_s_max``."""
        rate_per_s, buckets = self._rate_per_s, self._buckets.items()
        self._buckets = {each: held for each, held in buckets if not held.is_full(rate_per_s, now_s)}
        bucket = self._buckets.setdefault(name, TokenBucket(self._burst, now_s))
        if bucket.level(rate_per_s, now_s) - 1 < -wait_s_max * rate_per_s:
            return None
        return bucket.take(1, rate_per_s, now_s)
