"""What the machine says of itself: battery, memory of this node's processes, load of all others. The room's one adapter
of psutil.

Containers and old kernels hide parts of what it reads (/proc, /sys/class/power_supply). What cannot be read is then not
known, and no reason to end a node.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

import psutil

_MEMORY_S: Final = 20.0  # over which the load is averaged: a page that loads is no reason to pause
# What psutil raises where the system does not have, or does not show, the file that it reads or parses.
_UNREADABLE: Final = (psutil.Error, OSError, RuntimeError, ValueError, LookupError, AttributeError)

_T = TypeVar("_T")


class MachineWatch:
    """Looks again at each call; a look costs about a millisecond for each process that this one has started."""

    def __init__(self) -> None:
        self._own = _read(psutil.Process)
        self._seen: tuple[float, float, float] | None = None  # when; seconds of all cores that were used, that own were
        self._load: float | None = None

    def is_on_battery(self) -> bool:
        """Whether no mains power is there; False where the machine has no battery, or does not say."""
        return _read(_is_plugged) is False

    def memory_bytes(self) -> int:
        """Resident memory of this process and of those that it has started; 0 where the system does not say."""
        sizes = [_read(process.memory_info) for process in self._processes()]
        return sum(int(size.rss) for size in sizes if size is not None)

    def load_of_others(self) -> float | None:
        """Share of all cores that other programs use, averaged; None at the first call, and where it is not known."""
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
    """What the system says; None where it says nothing."""
    try:
        return look()
    except _UNREADABLE:
        return None


def _is_plugged() -> bool | None:
    """Whether mains power is there; None where there is no battery, or it does not say. AttributeError on systems for
    which psutil has no such function."""
    battery = psutil.sensors_battery()
    return None if battery is None else battery.power_plugged


def _used_s() -> float:
    """Seconds of all cores together in which something ran."""
    times = psutil.cpu_times()._asdict()
    passive = ("idle", "iowait", "guest", "guest_nice")  # guests are in user and nice already
    return float(sum(seconds for name, seconds in times.items() if name not in passive))


def _share(used_s: float, took_s: float) -> float:
    return min(1.0, max(0.0, used_s / took_s / (os.cpu_count() or 1)))


def _averaged(before: float | None, now: float, took_s: float) -> float:
    """The first measurement counts as a whole; the older one is, the less it counts."""
    return now if before is None else now + (before - now) * math.exp(-took_s / _MEMORY_S)
