"""Battery, memory of this node's processes, and load of all others, read through psutil.

No other module of this package uses psutil. Containers and old kernels hide parts of what it reads (/proc,
/sys/class/power_supply). A value that cannot be read counts as unknown, and does not end the node.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

import psutil

_MEMORY_S: Final = 20.0  # the load is averaged over this time: a page that loads is no reason to pause
# What psutil raises where the system lacks or hides the file that it reads or parses.
_UNREADABLE: Final = (psutil.Error, OSError, RuntimeError, ValueError, LookupError, AttributeError)

_T = TypeVar("_T")


class MachineWatch:
    """Measures at each call, in about a millisecond for each process that this one has started."""

    def __init__(self) -> None:
        self._own = _read(psutil.Process)
        self._seen: tuple[float, float, float] | None = None  # time; seconds of all cores used by all, by own processes
        self._load: float | None = None

    def is_on_battery(self) -> bool:
        """Return whether mains power is off; False if the machine has no battery or does not say."""
        return _read(_is_plugged) is False

    def memory_bytes(self) -> int:
        """Return the resident bytes of this process and of those that it has started; 0 if the system does not say."""
        sizes = [_read(process.memory_info) for process in self._processes()]
        return sum(int(size.rss) for size in sizes if size is not None)

    def load_of_others(self) -> float | None:
        """Return the averaged share of all cores that other programs use; None at the first call, or if unknown."""
        used_s = _read(_used_s)
        if used_s is None:
            return None
        seen = time.monotonic(), used_s, self._own_s()
        if self._seen is not None:
            took_s, used_s, own_s = (now - before for now, before in zip(seen, self._seen, strict=True))
            if took_s > 0:
                self._load = _averaged(self._load, _share(used_s - max(0.0, own_s), took_s), took_s)
        self._seen = seen
        return self._load

    def _own_s(self) -> float:
        times = [_read(process.cpu_times) for process in self._processes()]
        return float(sum(each.user + each.system for each in times if each is not None))

    def _processes(self) -> list[psutil.Process]:
        own = self._own
        return [] if own is None else [own, *(_read(lambda: own.children(recursive=True)) or ())]


def _read(look: Callable[[], _T]) -> _T | None:
    """Return the result of ``look``; None if the system does not provide it."""
    try:
        return look()
    except _UNREADABLE:
        return None


def _is_plugged() -> bool | None:
    """Return whether mains power is on; None if there is no battery, or it does not say.

    AttributeError on systems for which psutil has no such function.
    """
    battery = psutil.sensors_battery()
    return None if battery is None else battery.power_plugged


def _used_s() -> float:
    """Return the seconds of all cores together in which something ran."""
    times = psutil.cpu_times()._asdict()
    passive = ("idle", "iowait", "guest", "guest_nice")  # user and nice already include guests
    return float(sum(seconds for name, seconds in times.items() if name not in passive))


def _share(used_s: float, took_s: float) -> float:
    return min(1.0, max(0.0, used_s / took_s / (os.cpu_count() or 1)))


def _averaged(before: float | None, now: float, took_s: float) -> float:
    """Return the exponential moving average: the first measurement counts fully, and older ones fade over _MEMORY_S."""
    return now if before is None else now + (before - now) * math.exp(-took_s / _MEMORY_S)
