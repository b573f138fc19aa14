"""The limits of these tests themselves: a busy machine does not end the patience, a hang and a vain circle do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from tests import REPOSITORY
from tests.support.network_nodes import until
from tests.support.patience import SLOWER_MAX, Patience, Stopwatch, alarmed, wait_for_end, waits_of_family, within
from tests.support.running_nodes import wait_until

SPIN_IN_SHELL = "while :; do :; done"
LIMIT_S = 10.0


class Machine:
    """A machine by hand: its clock, and how long one thread of ours has stood in the queue for a processor."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waited_s = 0.0

    def seconds_of(self, limit_s: float, *, busy: float, progress: Callable[[], object] = lambda: None) -> float:
        """Return how long a patience lasts while we stand in the queue for that part of the time."""
        start_s = self.now_s
        patience = Patience(limit_s, progress=progress, clock=lambda: self.now_s, waits=lambda: {7: self.waited_s})
        while not patience.is_over():
            self.now_s += 0.125
            self.waited_s += busy * 0.125
        return self.now_s - start_s


@pytest.mark.parametrize(("busy", "times"), [(0.0, 1), (0.5, 2), (0.75, 4), (1.0, SLOWER_MAX), (3.0, SLOWER_MAX)])
def test_patience__part_of_the_time_in_the_queue__lasts_longer_by_that_and_has_an_end(busy: float, times: int) -> None:
    assert Machine().seconds_of(LIMIT_S, busy=busy) == pytest.approx(times * LIMIT_S, abs=0.7)


def test_patience__progress_and_then_none__begins_anew_with_each_and_ends() -> None:
    machine = Machine()
    seconds = machine.seconds_of(LIMIT_S, busy=0.0, progress=lambda: min(3, int(machine.now_s / 8)))
    assert seconds == pytest.approx(24 + LIMIT_S, abs=0.7)


def test_stopwatch__thread_that_is_gone_and_one_that_is_new__count_what_they_waited_and_no_more() -> None:
    waits = iter([{1: 5.0}, {1: 5.25, 2: 0.25}, {2: 0.25}])
    clock = iter([0.0, 1.0, 2.0])
    stopwatch = Stopwatch(lambda: next(waits), lambda: next(clock))
    assert [stopwatch.seconds(), stopwatch.seconds()] == [0.5, 1.5]


def test_wait_until__what_never_comes__fails_at_the_limit_and_names_it() -> None:
    started_s = time.monotonic()
    with pytest.raises(AssertionError, match=r"not within 0\.1 s: the end of time"):
        wait_until(lambda: False, "the end of time", limit_s=0.1)
    assert time.monotonic() - started_s < SLOWER_MAX


async def test_until__what_never_comes__is_too_slow() -> None:
    with pytest.raises(trio.TooSlowError):
        await until(lambda: False, within_s=0.05)


def test_wait_for_end__ended_and_hanging__is_its_code_and_the_time_that_expired() -> None:
    with subprocess.Popen(["sleep", "60"]) as hanging:
        with pytest.raises(subprocess.TimeoutExpired):
            wait_for_end(hanging, 0.1)
        hanging.kill()
        assert wait_for_end(hanging, 60.0) == -9


async def test_within__in_time_with_an_error_and_never__is_the_result_the_error_and_too_slow() -> None:
    async def fail() -> None:
        raise ValueError("its own")

    async def answer() -> int:
        return 7

    assert await within(60.0, answer) == 7
    with pytest.raises(ValueError, match="its own"):
        await within(60.0, fail)
    with pytest.raises(trio.TooSlowError):
        await within(0.05, trio.sleep_forever)


@pytest.mark.timeout(60)
def test_alarmed__block_that_hangs__rings_and_one_that_ends_does_not() -> None:
    rung: list[int] = []

    def ring() -> None:
        rung.append(1)
        raise TimeoutError

    with alarmed(60.0, ring):
        pass
    with pytest.raises(TimeoutError), alarmed(0.05, ring):
        time.sleep(60)
    assert rung == [1]


_HANGS = """
import time, pytest, trio
@pytest.mark.timeout(0.3)
def test_hang():
    time.sleep(60)
@pytest.mark.timeout(0.3)
def test_hang_in_trio():
    trio.run(trio.sleep_forever)
def test_after_it():
    trio.run(trio.sleep, 0)
"""


@pytest.mark.process
def test_timeout_mark__tests_that_hang__fail_by_it_and_no_other_does(tmp_path: Path) -> None:
    """Rung while trio waited for events, the alarm once made all later tests fail too."""
    (tmp_path / "test_made_up.py").write_text(_HANGS)
    options = ["-q", "-rN", "-p", "tests.conftest"]  # no summary: only where CI is set would it repeat the errors
    command = [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path)]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and "2 failed, 1 passed" in ended.stdout, ended.stdout
    assert ended.stdout.count("Failed: Timeout (>0.3s)") == 2, ended.stdout


@pytest.mark.process
@pytest.mark.skipif(not waits_of_family(), reason="needs Linux: it says how long threads wait for a processor")
def test_patience__strangers_compute_on_all_processors__grandchild_that_computes_gets_its_time() -> None:
    """It needs more seconds of a processor than the limit has seconds of a clock that others share."""
    computes = "import time\nwhile time.process_time() < 2.0: pass"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {computes!r}])"
    everywhere = strangers(4 * len(os.sched_getaffinity(0)))
    with everywhere, subprocess.Popen([sys.executable, "-c", child], start_new_session=True) as computing:
        try:
            assert wait_for_end(computing, 3.0) == 0
        finally:
            if computing.poll() is None:
                os.killpg(computing.pid, signal.SIGKILL)


@contextmanager
def strangers(count: int) -> Iterator[None]:
    """So many processes that are not of our family, and compute."""
    started = [
        subprocess.run(["sh", "-c", f"({SPIN_IN_SHELL}) >/dev/null 2>&1 & echo $!"], capture_output=True, check=True)
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for each in started:
            os.kill(int(each.stdout), signal.SIGKILL)
