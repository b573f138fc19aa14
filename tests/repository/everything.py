"""make test: python -m tests.repository.everything [--seeds N] [-- arguments for pytest]

All that a change must pass, once its style is right. pytest-xdist deals the tests out; what no plugin does is to give
way. Tests of real processes mostly wait and mind the clock. So what computes runs beside them in sessions of lower
priority: all other tests, and mypy and, later, the simulation, which fill the gaps that are left. Each phase prints its
output when it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Final

import click
import psutil

from sfnode.children.child_program import yield_to_others
from tests import REPOSITORY

BIN: Final = Path(sys.executable).parent
NICENESS: Final = 10  # that of a training worker: a ninth of the weight of what wants the same core
LAST_NICENESS: Final = 19  # a seventieth
MEMORY_DISK: Final = Path("/dev/shm")  # of Linux
MEMORY_BYTES_MIN: Final = 8 << 30  # all processes take four; pytest drops the folders of tests that have passed
PROCESS_TESTS_AT_ONCE: Final = 3  # each waits for three quarters of its time
_LOOK_EVERY_S: Final = 0.05
STOP_S: Final = 10.0  # for what runs to end in good order after Ctrl-C


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One command of `make test`."""

    name: str
    command: tuple[str, ...]
    niceness: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a phase ended; `computed_s` is the time of processor that it and its processes used."""

    name: str
    code: int
    wall_s: float
    computed_s: float

    def __str__(self) -> str:
        verdict = "passed" if self.code == 0 else f"FAILED (exit code {self.code})"
        return f"{self.name}: {verdict} after {self.wall_s:.0f} s, {self.computed_s:.0f} s of computing"


# --- the lanes


class _Running:
    """The first phase of a lane, in a session of its own, which has a priority of its own."""

    def __init__(self, lane: Sequence[Phase]) -> None:
        self.phase, *self.rest = lane
        self._started_s = time.monotonic()
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the phase has ended
        click.echo(f"==> {self.phase.name}: started")
        self._process = subprocess.Popen(
            self.phase.command,
            cwd=REPOSITORY,
            # Compiled modules are kept, whatever the machine likes: hundreds of processes would compile the same files.
            env=folders_in_memory()
            | {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(yield_to_others, self.phase.niceness),  # noqa: PLW1509 - there are no threads here
        )

    def ended(self) -> Ended | None:
        """Return how it ended, once, and print what it has said; None while it runs."""
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid == 0:
            return None
        self._process.returncode = os.waitstatus_to_exitcode(status)
        ended = Ended(
            name=self.phase.name,
            code=self._process.returncode,
            wall_s=time.monotonic() - self._started_s,
            computed_s=usage.ru_utime + usage.ru_stime,
        )
        with self._output:
            self._output.seek(0)
            said = self._output.read().decode(errors="replace").rstrip()
        click.echo(f"==> {self.phase.name}\n{said}\n==> {ended}" if said else f"==> {ended}")
        return ended

    def send(self, number: signal.Signals) -> None:
        """Signal it and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def folders_in_memory(disk: Path = MEMORY_DISK) -> dict[str, str]:
    """Return the variable by which pytest makes the tests' folders on a disk in memory; {} where it has no room.

    Tests wait for a disk thousands of times, some milliseconds each, in which nothing computes.
    """
    try:
        found = os.statvfs(disk)
    except OSError:
        return {}
    free_bytes = min(found.f_bavail * found.f_frsize, psutil.virtual_memory().available)
    may_be_used = os.access(disk, os.W_OK) and not found.f_flag & os.ST_NOEXEC
    return {"PYTEST_DEBUG_TEMPROOT": str(disk)} if may_be_used and free_bytes >= MEMORY_BYTES_MIN else {}


def run(*lanes: Sequence[Phase]) -> list[Ended]:
    """Run the lanes at the same time, the phases of each one after the other; KeyboardInterrupt after a signal.

    A phase that fails stops no other: one run shows all that is wrong.
    """
    done: list[Ended] = []
    with _signals_noted() as noted:
        running = [_Running(lane) for lane in lanes]
        while running and not noted:
            time.sleep(_LOOK_EVERY_S)
            ended = {each: end for each in running if (end := each.ended()) is not None}
            done += ended.values()
            running = [each for each in running if each not in ended]
            running += [_Running(each.rest) for each in ended if each.rest]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):  # whatever is left ends, first in good order
            for each in running:
                each.send(number)
            give_up_s = time.monotonic() + STOP_S
            while (running := [each for each in running if each.ended() is None]) and time.monotonic() < give_up_s:
                time.sleep(_LOOK_EVERY_S)
    if noted:
        raise KeyboardInterrupt
    return done


@contextlib.contextmanager
def _signals_noted() -> Iterator[list[int]]:
    """Note Ctrl-C and SIGTERM: thrown between the start of a process and its entry, one would leave it running."""
    noted: list[int] = []
    earlier = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heeded = {number: handler for number, handler in earlier.items() if handler != signal.SIG_IGN}
    for number in heeded:
        signal.signal(number, lambda number, _: noted.append(number))
    try:
        yield noted
    finally:
        for number, handler in heeded.items():
            signal.signal(number, handler)


# --- the phases


def lanes_of(seeds: int, arguments: Sequence[str]) -> tuple[tuple[Phase, ...], ...]:
    """Return what runs at the same time: processes that wait, and at lower priorities what computes.

    The simulation comes last: tests that compute are alone by then, and wait for children and disks a quarter of it.

    tests/conftest.py puts the longest tests of processes first. Those of one file run one after the other: they may
    share what a machine has once, such as the port on which routers are looked for.
    """
    small = ("-o", "tmp_path_retention_policy=failed")
    at_once = ("-n", str(PROCESS_TESTS_AT_ONCE), "--dist", "loadfile", "--no-loadscope-reorder")
    waiting = _tool("pytest", "-m", "process and not slow", *at_once, *small, *arguments, *files_with_process_tests())
    on_all_cores = ("-n", "auto", "--maxprocesses", "4", "--dist", "worksteal")
    computing = _tool("pytest", "-m", "not process and not slow", *on_all_cores, *small, *arguments)
    simulation = (sys.executable, "-m", "tests.simulation", "--seeds", str(seeds))
    return (
        (
            Phase(name="pytest, real processes", command=waiting),
            Phase(name=f"make simulate SEEDS={seeds}", command=simulation, niceness=LAST_NICENESS),
        ),
        (Phase(name="pytest, all other tests", command=computing, niceness=NICENESS),),
        (Phase(name="mypy", command=_tool("mypy"), niceness=LAST_NICENESS),),
    )


def files_with_process_tests() -> list[str]:
    """Return the files that name the mark `process`: to collect all others would take each worker ten seconds."""
    files = sorted((REPOSITORY / "tests").rglob("test_*.py"))
    return [str(path.relative_to(REPOSITORY)) for path in files if "mark.process" in path.read_text("utf-8")]


def _tool(name: str, *arguments: str) -> tuple[str, ...]:
    return (str(BIN / name), *arguments)


# --- the command


@click.command()
@click.option("--seeds", type=int, default=60, show_default=True, help="How many seeds are simulated.")
@click.argument("arguments", nargs=-1)
def main(seeds: int, arguments: tuple[str, ...]) -> None:
    """Run types, tests and simulation side by side. ARGUMENTS go to pytest."""
    started_s = time.monotonic()
    ended = run(*lanes_of(seeds, arguments))
    for line in summary(ended, time.monotonic() - started_s):
        click.echo(line)
    sys.exit(1 if any(phase.code for phase in ended) else 0)


def summary(ended: Sequence[Ended], wall_s: float) -> Iterator[str]:
    """Yield one line for each phase, and one for all."""
    yield "==> summary"
    yield from (f"  {phase}" for phase in ended)
    failed = [phase.name for phase in ended if phase.code]
    verdict = f"FAILED: {', '.join(failed)};" if failed else "passed"
    computed_s = sum(phase.computed_s for phase in ended)
    yield f"  all: {verdict} after {wall_s:.0f} s, {computed_s:.0f} s of computing on {os.cpu_count()} cores"


if __name__ == "__main__":
    main()
