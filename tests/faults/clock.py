"""A clock for tests in which time runs faster than it does, and which stops while the machine has no time for us."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import trio

_WAITS: Final = Path("/proc/thread-self/schedstat")  # nanoseconds: on a processor, and ready but waiting for one


class UnhurriedClock(trio.abc.Clock):
    """Runs ``rate`` times as fast as the wall clock, less the time in which the thread waited for a processor.

    Beside other work, a handshake would else take longer than its deadline, because deadlines come ``rate`` times as
    early and processors are not faster.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._waits = os.open(_WAITS, os.O_RDONLY) if _WAITS.exists() else None  # only Linux says it
        self._start_s = self._counted_s()

    def __del__(self) -> None:
        if self._waits is not None:
            os.close(self._waits)

    def _counted_s(self) -> float:
        waited_ns = 0 if self._waits is None else int(os.pread(self._waits, 100, 0).split()[1])
        return time.perf_counter() - waited_ns / 1e9

    def start_clock(self) -> None:
        """Do nothing: time runs from the start."""

    def current_time(self) -> float:
        """Return the virtual seconds since the clock was made."""
        return self._rate * (self._counted_s() - self._start_s)

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the seconds of the wall clock until then, if the thread does not have to wait for a processor."""
        return max(0.0, (deadline - self.current_time()) / self._rate)
