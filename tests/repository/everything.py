"""make test: python -m tests.repository.everything [--seeds N] [--store] [-- arguments for pytest]

All that a change must pass, in three lanes at once. Tests of real processes mostly wait, so two of them at a time leave
the cores idle half of the time. What computes takes the idle half at lower priorities, so that tests that mind the
clock hardly notice it: mypy and all other tests, and the simulation, which fills whatever gap is left. Each phase
prints its output in one piece when it ends."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Final

import click

from tests import REPOSITORY
from tests.repository.affected import MARK, is_process_test
from tests.repository.architecture import parse_file
from tests.repository.durations import CORES, PROCESSES, store_seconds, stored_seconds

BIN: Final = Path(sys.executable).parent
NICENESS: Final = 10  # that of a training worker: a ninth of the weight of what wants the same core
LAST_NICENESS: Final = 19  # a seventieth
PROCESS_TESTS_AT_ONCE: Final = 2
_LOOK_EVERY_S: Final = 0.05
STOP_S: Final = 10.0  # for each lane to end in good order after Ctrl-C


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One command of `make test`."""

    name: str
    command: tuple[str, ...]


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


@dataclass
class Driver:
    """Runs phases in lanes, and prints what each of them has said when it ends."""

    ended: list[Ended] = field(default_factory=list)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _is_stopped: bool = False
    _change: threading.Condition = field(default_factory=threading.Condition)  # of what runs
    _screen: threading.Lock = field(default_factory=threading.Lock)

    def run(self, *lanes: Sequence[Phase]) -> bool:
        """Run the lanes at the same time, the phases of each one after the other; whether all of them passed.

        A phase that fails stops no other: one run shows all that is wrong.
        """
        with ThreadPoolExecutor(max_workers=len(lanes)) as pool, _signals_noted() as noted:
            running = [pool.submit(self._run_lane, lane) for lane in lanes]
            while not all(lane.done() for lane in running):
                if noted:
                    self._stop()
                    raise KeyboardInterrupt
                time.sleep(_LOOK_EVERY_S)
        for lane in running:
            lane.result()
        ended = {phase.name: phase.code for phase in self.ended}
        return all(ended.get(phase.name) == 0 for lane in lanes for phase in lane)

    def _run_lane(self, lane: Sequence[Phase]) -> None:
        for phase in lane:
            self._run_phase(phase)

    def _run_phase(self, phase: Phase) -> None:
        started_s = time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = self._start(phase, output)
            if process is None:
                return
            computed_s = _wait(process)
            with self._change:
                del self._running[phase.name]
                self._change.notify_all()
            output.seek(0)
            said = output.read().decode(errors="replace").rstrip()
        wall_s = time.monotonic() - started_s
        ended = Ended(name=phase.name, code=process.returncode, wall_s=wall_s, computed_s=computed_s)
        self.ended.append(ended)
        self._say(f"==> {phase.name}\n{said}\n==> {ended}" if said else f"==> {ended}")

    def _start(self, phase: Phase, output: IO[bytes]) -> subprocess.Popen[bytes] | None:
        """None once the driver is stopped. Under the lock, so that `_stop` sees every process that was started."""
        with self._change:
            if self._is_stopped:
                return None
            self._say(f"==> {phase.name}: started")
            process = self._running[phase.name] = subprocess.Popen(
                phase.command,
                cwd=REPOSITORY,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return process

    def _say(self, text: str) -> None:
        with self._screen:
            click.echo(text)

    def _stop(self) -> None:
        """Start nothing more and end what runs, first in good order."""
        with self._change:
            self._is_stopped = True
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            for process in list(self._running.values()):
                _send(process, number)
            with self._change:
                if self._change.wait_for(lambda: not self._running, timeout=STOP_S):
                    return


@contextlib.contextmanager
def _signals_noted() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM are noted, not thrown: thrown into `concurrent.futures`, one left a lock held for ever."""
    noted: list[int] = []
    earlier = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heeded = [number for number, handler in earlier.items() if handler != signal.SIG_IGN]
    for number in heeded:
        signal.signal(number, lambda number, _: noted.append(number))
    try:
        yield noted
    finally:
        for number in heeded:
            signal.signal(number, earlier[number])


def _environment() -> dict[str, str]:
    """Compiled modules are kept, whatever the machine likes: hundreds of processes would compile the same files."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """To it and what it has started. Not `process.send_signal`, which may reap a process that its lane waits for."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _wait(process: subprocess.Popen[bytes]) -> float:
    """Wait until the process has ended; the seconds of processor that it and its children used."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


# --- the phases


def style() -> tuple[Phase, ...]:
    """What is done before all else: it takes no time, and often finds something."""
    return (
        Phase(name="ruff check", command=_tool("ruff", "check", "--quiet", ".")),
        Phase(name="ruff format", command=_tool("ruff", "format", "--check", "--quiet", ".")),
    )


def process_tests(arguments: Sequence[str], files: Sequence[str]) -> Phase:
    """Tests of real processes and those that mind the clock, the longest files first. Two files at a time."""
    how = ("-n", str(PROCESS_TESTS_AT_ONCE), "--dist", "loadfile", "--no-loadscope-reorder")
    command = _tool("pytest", "-m", "process and not slow", *how, *arguments, *files)
    return Phase(name="pytest, real processes", command=command)


def computing_tests(arguments: Sequence[str]) -> Phase:
    """All other tests, on all cores."""
    how = ("-n", "auto", "--maxprocesses", "4", "--dist", "worksteal")
    command = _tool("pytest", "-m", "not process and not slow", *how, *arguments)
    return Phase(name="pytest, all other tests", command=command)


def simulation(seeds: int) -> Phase:
    """Whole networks in virtual time."""
    command = (sys.executable, "-m", "tests.simulation", "--seeds", str(seeds))
    return Phase(name=f"make simulate SEEDS={seeds}", command=command)


def lanes_of(seeds: int, arguments: Sequence[str]) -> tuple[tuple[Phase, ...], ...]:
    """What runs at the same time: processes that wait, and at a lower priority what computes."""
    computing = (Phase(name="mypy", command=_tool("mypy")), computing_tests(arguments))
    waiting = process_tests(arguments, longest_first(read_process_tests(), stored_seconds(PROCESSES)))
    return (waiting,), tuple(nice(phase) for phase in computing), (nice(simulation(seeds), LAST_NICENESS),)


def nice(phase: Phase, niceness: int = NICENESS) -> Phase:
    """The same at a lower priority."""
    return replace(phase, command=(sys.executable, "-m", "tests.repository.niced", str(niceness), *phase.command))


def read_process_tests(folder: Path = REPOSITORY / "tests") -> list[str]:
    """The files with tests that are marked `process`."""
    texts = {path: path.read_text("utf-8") for path in folder.rglob("test_*.py")}
    modules = [parse_file(text, path.relative_to(folder.parent)) for path, text in texts.items() if MARK in text]
    return [module.path for module in modules if is_process_test(module)]


def longest_first(paths: Iterable[str], seconds: Mapping[str, float]) -> list[str]:
    """Those that nobody has measured come before them."""
    return sorted(paths, key=lambda path: (-seconds.get(path, math.inf), path))


def store_durations(arguments: Sequence[str]) -> bool:
    """Run the tests of both kinds, one kind after the other and nothing beside them, and store how long they took."""
    with tempfile.TemporaryDirectory() as folder:
        reports = {kind: Path(folder, f"{kind}.xml") for kind in (CORES, PROCESSES)}
        computing = computing_tests([*arguments, "--junitxml", str(reports[CORES])])
        files = longest_first(read_process_tests(), stored_seconds(PROCESSES))
        waiting = process_tests([*arguments, "--junitxml", str(reports[PROCESSES])], files)
        passes = Driver().run((computing, waiting))
        if passes:
            store_seconds(reports)
    return passes


def _tool(name: str, *arguments: str) -> tuple[str, ...]:
    return (str(BIN / name), *arguments)


# --- the command


@click.command()
@click.option("--seeds", type=int, default=300, show_default=True, help="How many seeds are simulated.")
@click.option("--store", "is_storing", is_flag=True, help="Only run the tests, and write durations.json from them.")
@click.argument("arguments", nargs=-1)
def main(seeds: int, is_storing: bool, arguments: tuple[str, ...]) -> None:
    """Run all that a change must pass: style, types, tests, simulation. ARGUMENTS go to pytest."""
    if is_storing:
        sys.exit(0 if store_durations(arguments) else 1)
    started_s = time.monotonic()
    driver = Driver()
    passes = driver.run(style()) and driver.run(*lanes_of(seeds, arguments))
    for line in summary(driver.ended, time.monotonic() - started_s):
        click.echo(line)
    sys.exit(0 if passes else 1)


def summary(ended: Sequence[Ended], wall_s: float) -> Iterator[str]:
    """One line for each phase, and one for all."""
    yield "==> summary"
    yield from (f"  {phase}" for phase in ended)
    failed = [phase.name for phase in ended if phase.code]
    verdict = f"FAILED: {', '.join(failed)};" if failed else "passed"
    computed_s = sum(phase.computed_s for phase in ended)
    yield f"  all: {verdict} after {wall_s:.0f} s, {computed_s:.0f} s of computing on {os.cpu_count()} cores"


if __name__ == "__main__":
    main()
