"""Calls ``sfnode`` through its real entry point in this process: as exact as a subprocess, and fast.

A worker takes four seconds of computing to import what it needs, so that all calls of a test process share one, which
serves any number of sessions. That commands start and end workers of their own is seen in tests/worker and
tests/processes."""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import json
import logging
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from sfnode.cli import main
from sfnode.worker import supervisor
from tests.support.worker_process import WorkerProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a shell would see of one command."""

    code: int
    stdout: str
    stderr: str

    @property
    def error(self) -> str:
        """The one line that says what is wrong; fails unless the command failed and ended with exactly one."""
        assert self.code != 0, self
        assert "Traceback" not in self.stderr + self.stdout, self
        if self.stderr.startswith('{"error": '):  # --json
            return str(json.loads(self.stderr)["error"]["message"])
        lines = [line for line in self.stderr.splitlines() if line.startswith("Error: ")]
        assert len(lines) == 1 and self.stderr.endswith(f"{lines[0]}\n"), self
        return lines[0].removeprefix("Error: ")


def call(*arguments: object) -> Outcome:
    """Run one command to its end. An exception that the entry point lets through, a bug, fails the calling test."""
    stdout, stderr = io.StringIO(), io.StringIO()
    code = 0
    with (
        mock.patch.object(sys, "argv", ["sfnode", *map(str, arguments)]),
        mock.patch.object(supervisor, "worker_process", _shared_worker),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        log_as_it_was(),
        signals_as_they_were(),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return Outcome(code=code, stdout=stdout.getvalue(), stderr=stderr.getvalue())


@contextlib.contextmanager
def signals_as_they_were() -> Iterator[None]:
    """A command lets signals end the process at once, or ignores them at its end."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def log_as_it_was() -> Iterator[None]:
    """A node shows its log on its output, which is closed after the body: slips of later tests would be shown there."""
    log = logging.getLogger("sfnode")
    handlers, level, propagate = [*log.handlers], log.level, log.propagate
    try:
        yield
    finally:
        log.handlers[:], log.propagate = handlers, propagate
        if log.level != level:  # setting it goes through all loggers, of which torch and its friends have thousands
            log.setLevel(level)


def assert_teaches(outcome: Outcome, *parts: str) -> None:
    """The command failed with one line that contains every one of ``parts``: what, where, what to do."""
    missing = [part for part in parts if part not in outcome.error]
    assert not missing, f"{missing} not in: {outcome.error}"


@contextlib.asynccontextmanager
async def _shared_worker(*, threads: int | None = None, patience: int = 1) -> AsyncIterator[Path]:
    """In place of `supervisor.worker_process`; it has one thread, whatever is asked for."""
    del threads
    yield shared_worker().path


@functools.cache
def shared_worker() -> WorkerProcess:
    """The worker of all tests of this process: it is started once, and serves any number of sessions."""
    until_exit = contextlib.ExitStack()
    atexit.register(until_exit.close)
    folder = until_exit.enter_context(tempfile.TemporaryDirectory(prefix="sfnode-"))
    return until_exit.enter_context(WorkerProcess(Path(folder)))
