"""What may catch a mutant: the simulation, the conformance vectors, a named test, two processes that must agree.

Each looks as long as its budget lasts and says what it found first, or nothing. An exception that only a slip in the
mutant itself explains (a name that does not exist) is not a finding.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import Protocol

import pytest

from tests import REPOSITORY
from tests.simulation.holding import Violation
from tests.simulation.world import run_seed
from tests.vectors.catalogue import FOLDER, rendered

SEEDS_MAX = 60
_CPU_SECONDS_PER_SEED = 30  # a usual seed takes 0.4 s of one core, the slowest 2 s
_SLIPS = ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", "SyntaxError", "fixture")


class BrokenMutantError(Exception):
    """The mutant does not run at all: nothing can be said of the checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What caught a mutant, and how many seeds, tests or files it took. Empty text: nothing was found."""

    text: str = ""
    tries: int


class Detector(Protocol):
    """Something that may catch a mutant while it is switched on."""

    def look(self, mutant: str) -> Finding:
        """Look for a difference, within the budget. BrokenMutantError when the mutant cannot run."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """Seeds ``first`` ... ``first + seeds - 1`` of the simulation, up to the first violation that says ``because``.

    A bug that shows as something else than what it breaks may have met another bug: that does not count.
    """

    because: str = ""
    seeds: int = SEEDS_MAX
    first: int = 0

    def __str__(self) -> str:
        return "simulation"

    def look(self, mutant: str) -> Finding:
        for number in range(self.seeds):
            text = self._violation(self.first + number)
            if text and self.because in checked(text):
                return Finding(text=f"seed {self.first + number}: {text}", tries=number + 1)
        return Finding(tries=self.seeds)

    def _violation(self, seed: int) -> str:
        try:
            with cpu_limit(_CPU_SECONDS_PER_SEED):
                return run_seed(seed).violation
        except Violation as violation:
            return str(violation)


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Violation after so many seconds of this process's own time, however busy the machine is."""

    def stop(*_: object) -> None:
        raise Violation(f"stuck: {seconds} s of computing, and no end")

    usual = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, usual)


@dataclass(frozen=True, slots=True)
class Vectors:
    """The checked-in conformance vectors against what the code gives now."""

    files: tuple[str, ...]

    def __str__(self) -> str:
        return "vectors"

    def look(self, mutant: str) -> Finding:
        for number, name in enumerate(self.files, start=1):
            if text := self._difference(name):
                return Finding(text=f"{name}: {text}", tries=number)
        return Finding(tries=len(self.files))

    def _difference(self, name: str) -> str:
        held = json.loads((FOLDER / name).read_text("utf-8"))
        try:
            given = json.loads(rendered(name))
        except AssertionError as error:
            return f"cannot be written any more: {str(error)[:100] or 'a check of its writer fails'}"
        pairs = zip(held["cases"], given["cases"], strict=True)
        return next((f"{old['name']}: another result than the one checked in" for old, new in pairs if old != new), "")


@dataclass(frozen=True, slots=True)
class Tests:
    """Named tests, or all of a file; run by pytest in this process."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return "test"

    def look(self, mutant: str) -> Finding:
        record = _Record()
        options = ["-q", "-x", "-p", "no:cacheprovider", "--no-header", "--rootdir", str(REPOSITORY)]
        options += ["-p", "no:unraisableexception"]  # what a failed test leaves behind is not the question
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins may have been imported before
        output = io.StringIO()
        with redirect_stdout(output):
            code = pytest.main([*options, *self.names], plugins=[record])
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            raise BrokenMutantError(output.getvalue()[-2_000:])
        if record.failure:
            return Finding(text=checked(record.failure), tries=record.count)
        return Finding(tries=record.count)


@dataclass(slots=True)
class _Record:
    """A pytest plugin: how many tests ran, and why the first one failed."""

    count: int = 0
    failure: str = field(default="")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.count += report.when == "call"
        if report.failed and not self.failure:
            crash = getattr(report.longrepr, "reprcrash", None)
            message = " ".join(crash.message.split()) if crash else report.longreprtext[-300:]
            self.failure = f"{report.location[2]}: {message}"


@dataclass(frozen=True, slots=True)
class Directed:
    """A scene that says what went wrong in it, if anything."""

    scene: Callable[[], str]

    def __str__(self) -> str:
        return "directed"

    def look(self, mutant: str) -> Finding:
        return Finding(text=checked(self.scene()), tries=1)


@dataclass(frozen=True, slots=True)
class HashSeeds:
    """One seed of the simulation in processes whose sets of bytes have different orders: one history, or a bug."""

    seed: int = 11

    def __str__(self) -> str:
        return "hash seeds"

    def look(self, mutant: str) -> Finding:
        values = ("1", "2")
        traces = [self._trace(mutant, value) for value in values]
        if len(set(traces)) == 1:
            return Finding(tries=len(values))
        shown = ", ".join(f"{trace[:8]} under {value}" for value, trace in zip(values, traces, strict=True))
        return Finding(text=f"seed {self.seed} has other histories under other PYTHONHASHSEEDs: {shown}", tries=1)

    def _trace(self, mutant: str, hash_seed: str) -> str:
        command = [sys.executable, "-m", "tests.mutants", "--trace", str(self.seed), "--only", mutant]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BrokenMutantError(done.stderr[-2_000:])
        return done.stdout.strip()


def checked(text: str) -> str:
    """The text of a finding; BrokenMutantError when it tells of a slip in the mutant."""
    if any(slip in text.split(" ", 3)[0] or f": {slip}" in text[:300] for slip in _SLIPS):
        raise BrokenMutantError(text)
    return text
