"""What the machine says of itself: battery, memory of this node's processes, load of all others. The room's one adapter
of psutil."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import Final

import psutil

_MEMORY_S: Final = 20.0  # over which the load is averaged: a page that loads is no reason to pause


class MachineWatch:
    """Looks again at each call; a look costs about a millisecond for each process that this one has started."""

    def __init__(self) -> None:
        self._own = psutil.Process()
        self._seen: tuple[float, float, float] | None = None  # when; seconds of all cores that were used, that own were
        self._load: float | None = None

    def is_on_battery(self) -> bool:
        """Whether no mains power is there; False where the machine has no battery."""
        look = getattr(psutil, "sensors_battery", None)
        battery = None if look is None else look()
        return battery is not None and battery.power_plugged is False

    def memory_bytes(self) -> int:
        """Resident memory of this process and of those that it has started."""
        total = 0
        for process in self._processes():
            with suppress(psutil.Error):
                total += int(process.memory_info().rss)
        return total

    def load_of_others(self) -> float | None:
        """Share of all cores that other programs use, averaged; None at the first call."""
        seen = time.monotonic(), _used_s(), self._own_s()
        if self._seen is not None:
            took_s, used_s, own_s = (now - before for now, before in zip(seen, self._seen, strict=True))
            if took_s > 0:
                self._load = _averaged(self._load, _share(used_s - max(0.0, own_s), took_s), took_s)
        self._seen = seen
        return self._load

    def _own_s(self) -> float:
        total = 0.0
        for process in self._processes():
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def _processes(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            return [self._own, *self._own.children(recursive=True)]
        return [self._own]


def _used_s() -> float:
    """Seconds of all cores together in which something ran."""
    times = psutil.cpu_times()._asdict()
    passive = ("idle", "iowait", "guest", "guest_nice")  # guests are in user and nice already
    return float(sum(seconds for name, seconds in times.items() if name not in passive))


def _share(used_s: float, took_s: float) -> float:
    return min(1.0, max(0.0, used_s / took_s / (psutil.cpu_count() or 1)))


def _averaged(before: float | None, now: float, took_s: float) -> float:
    """The first measurement counts as a whole; the older one is, the less it counts."""
    return now if before is None else now + (before - now) * math.exp(-took_s / _MEMORY_S)
