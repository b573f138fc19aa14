"""Battery, memory of this node's processes, load and names of all others, read through psutil.

No other module of this package uses psutil. Containers and old kernels hide parts of what it reads (/proc,
/sys/class/power_supply). A value that cannot be read counts as unknown, and does not end the node.
"""

import math
import os
import time
from collections.abc import Callable
from typing import TypeVar

import psutil

_MEMORY_S = 20.0  # the load is averaged over this time: a page that loads is no reason to pause
_PROGRAMS_S = 5.0  # between two looks at the names of all processes, which take some milliseconds
_PASSIVE = ("idle", "iowait", "guest", "guest_nice")  # kinds of time; user and nice already include guests
# What psutil raises where the system lacks or hides the file that it reads or parses.
_UNREADABLE = (psutil.Error, OSError, RuntimeError, ValueError, LookupError, AttributeError)

_T = TypeVar("_T")


class MachineWatch:
    """Measures at each call, in about a millisecond for each process that this one has started."""

    def __init__(self) -> None:
        self._own = _read(psutil.Process)
        self._seen: tuple[float, float, float] | None = None  # time; seconds of all cores used by all, by own processes
        self._load: float | None = None
        self._program, self._programs_s = "", -math.inf

    def is_on_battery(self) -> bool:
        """Return whether mains power is off; False if the machine has no battery or does not say."""
        battery = _read(lambda: psutil.sensors_battery())  # noqa: PLW0108  # some systems lack the function itself
        return battery is not None and battery.power_plugged is False

    def memory_bytes(self) -> int:
        """Return the resident bytes of this process and of those that it has started; 0 if the system does not say."""
        sizes = [_read(process.memory_info) for process in self._processes()]
        return sum(int(size.rss) for size in sizes if size is not None)

    def load_of_others(self) -> float | None:
        """Return the averaged share of all cores that other programs use; None at the first call, or if unknown."""
        of_all = _read(lambda: psutil.cpu_times()._asdict())
        if of_all is None:
            return None
        used_s = float(sum(seconds for name, seconds in of_all.items() if name not in _PASSIVE))
        own = [_read(process.cpu_times) for process in self._processes()]
        own_s = float(sum(each.user + each.system for each in own if each is not None))
        seen = time.monotonic(), used_s, own_s
        if self._seen is not None:
            took_s, used_s, own_s = (now - before for now, before in zip(seen, self._seen, strict=True))
            if took_s > 0:
                share = min(1.0, max(0.0, (used_s - max(0.0, own_s)) / took_s / (os.cpu_count() or 1)))
                # Exponential moving average: the first measurement counts fully, older ones fade over _MEMORY_S.
                fading = 0.0 if self._load is None else (self._load - share) * math.exp(-took_s / _MEMORY_S)
                self._load = share + fading
        self._seen = seen
        return self._load

    def running_program(self, names: tuple[str, ...]) -> str:
        """Return the first of ``names`` that another process has; empty: none, or the system does not say."""
        if not names or time.monotonic() - self._programs_s < _PROGRAMS_S:
            return self._program
        self._programs_s = time.monotonic()
        own = {process.pid for process in self._processes()}
        others = _read(lambda: [each.info["name"] for each in psutil.process_iter(["name"]) if each.pid not in own])
        running = {(name or "").lower().removesuffix(".exe") for name in others or ()}
        self._program = next((name for name in names if name.lower().removesuffix(".exe") in running), "")
        return self._program

    def _processes(self) -> list[psutil.Process]:
        own = self._own
        return [] if own is None else [own, *(_read(lambda: own.children(recursive=True)) or ())]


def _read(look: Callable[[], _T]) -> _T | None:
    """Return the result of ``look``; None if the system does not provide it."""
    try:
        return look()
    except _UNREADABLE:
        return None
