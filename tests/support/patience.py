"""How long tests wait for processes: a machine that is busy with other work is slow, and not a reason to fail.

A limit counts the time of the clock, less what our own threads spent in the queue for a processor. That is this
process with its children and theirs: the nodes under test, their workers, the fork server. So a node that hangs is
found as soon as on an idle machine, and one that computes in a circle once it has computed for as long as the limit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final, TypeVar

import trio

SLOWER_MAX: Final = 10  # a second of the clock counts at least a tenth: the limit on a machine that gives us nothing
_LOOK_S: Final = 0.5  # threads that end in between take the record of their waiting with them
_POLL_S: Final = 0.05
_ALARM_S: Final = 5.0  # how often a test that takes long is interrupted to see whether its time is over

Result = TypeVar("Result")
Waits = Mapping[int, float]  # seconds in the queue for a processor, of each thread so far


class Stopwatch:
    """Counts the seconds in which the processors were there for us.

    Args:
        waits: of the threads that count; of this process and its descendants unless others are named.
        clock: of the machine, unless a test brings its own.
    """

    def __init__(self, waits: Callable[[], Waits] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._waits, self._clock = waits or waits_of_family, clock
        self._counted_s = 0.0
        self._looked_s = clock()
        self._waited = self._waits()

    def seconds(self) -> float:
        """Return how many since the beginning; to be asked every second or so, for the sake of threads that end."""
        now_s, waited = self._clock(), self._waits()
        since_s = now_s - self._looked_s
        # A thread that is new has waited since the last look at the earliest.
        in_queue_s = sum(max(0.0, each - self._waited.get(thread, 0.0)) for thread, each in waited.items())
        self._counted_s += max(since_s / SLOWER_MAX, since_s - in_queue_s)
        self._looked_s, self._waited = now_s, waited
        return self._counted_s


class Patience:
    """Says when a limit has passed: ``limit_s`` seconds of a `Stopwatch` without progress.

    Args:
        progress: a value that changes when the awaited is nearer than before; then the limit begins anew.
        waits, clock: as of a `Stopwatch`.
    """

    def __init__(
        self,
        limit_s: float,
        *,
        progress: Callable[[], object] = lambda: None,
        waits: Callable[[], Waits] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit_s, self._progress, self._clock = limit_s, progress, clock
        self._stopwatch = Stopwatch(waits, clock)
        self._seen = progress()
        self._began_s = self._spent_s = 0.0  # as the stopwatch has it
        self._looked_s = clock()

    def is_over(self) -> bool:
        """Whether the limit has passed; to be asked again and again, at least every few seconds."""
        now_s, left_s = self._clock(), self._began_s + self._limit_s - self._spent_s
        if now_s - self._looked_s < min(_LOOK_S, max(left_s, _POLL_S)):
            return False
        self._looked_s, self._spent_s = now_s, self._stopwatch.seconds()
        if (seen := self._progress()) != self._seen:
            self._seen, self._began_s = seen, self._spent_s
        return self._spent_s - self._began_s >= self._limit_s


def wait_for_end(process: subprocess.Popen[bytes], limit_s: float) -> int:
    """Return the exit code of a process; subprocess.TimeoutExpired when it has not ended within the limit."""
    patience = Patience(limit_s)
    while not patience.is_over():
        with suppress(subprocess.TimeoutExpired):
            return process.wait(min(0.2, limit_s))
    return process.wait(0.0)


async def within(limit_s: float, act: Callable[[], Awaitable[Result]]) -> Result:
    """Return what ``act`` does; trio.TooSlowError when it has not ended within the limit."""
    patience, ended, failed = Patience(limit_s), list[Result](), list[Exception]()

    async def until_it_ends() -> None:
        try:
            ended.append(await act())
        except Exception as error:  # the test's own, for whom it is raised again
            failed.append(error)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(until_it_ends)
        while not patience.is_over():
            await trio.sleep(_POLL_S)
        nursery.cancel_scope.cancel()
    if failed:
        raise failed[0]
    if ended:
        return ended[0]
    raise trio.TooSlowError


@contextmanager
def alarmed(limit_s: float, ring: Callable[[], None]) -> Iterator[None]:
    """Call ``ring`` in the main thread, whatever it does there, once the block has taken the limit."""
    patience = Patience(limit_s)

    def look(_number: int, _frame: FrameType | None) -> None:
        if patience.is_over():
            signal.setitimer(signal.ITIMER_REAL, 0)
            ring()

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, min(limit_s, _ALARM_S), min(limit_s, _ALARM_S))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def waits_of_family() -> Waits:
    """Return the waits of all threads of this process and its descendants."""
    return waits_of(_family())


def waits_of(processes: Iterable[int]) -> Waits:
    """Return the waits of all threads of these processes; nothing where the system is not Linux.

    A thread that is in the queue right now is counted as soon as its turn has come.
    """
    waits: dict[int, float] = {}
    for thread in (thread for process in processes for thread in _threads(process)):
        with suppress(OSError):  # it has ended since
            _, in_queue_ns, _ = (thread / "schedstat").read_text().split()
            waits[int(thread.name)] = int(in_queue_ns) / 1e9
    return waits


def _threads(process: int) -> list[Path]:
    """Return the folders of a process's threads in /proc; none when it has ended."""
    tasks = Path(f"/proc/{process}/task")
    try:
        return [tasks / thread for thread in os.listdir(tasks)]
    except OSError:
        return []


def _family() -> Iterator[int]:
    """Process ids of this process and its descendants; a hundredth of the work of looking through all processes.

    While a child ends, the system may leave out a sibling of it: its time in the queue is then known at the next look.
    """
    waiting = [os.getpid()] if Path("/proc/self/schedstat").exists() else []
    while waiting:
        process = waiting.pop()
        yield process
        for thread in _threads(process):
            with suppress(OSError):  # it has ended since
                waiting += map(int, (thread / "children").read_text().split())
