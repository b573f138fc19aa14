"""Calls commands in this process up to where their work would begin, and notices one that waits for ever."""

from __future__ import annotations

import contextlib
import functools
import io
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn
from unittest import mock

import click

from protocol.errors import OperatorError
from sfnode import keys
from sfnode.cli import main
from sfnode.storage import data_directory
from sfnode.training import described_model, shared_model
from tests.support.cli_calls import log_as_it_was, signals_as_they_were

REACHED: Final = "the work itself would begin here"
_LOOK_S: Final = 2.0
_STILL_LOOKS: Final = 20  # in a row without any computing: it waits for something that never comes
_STILL_S: Final = 0.1
_COMPUTING_S_MAX: Final = 40.0  # of one call
_MEMORY: Final = 2 << 30  # more than at the beginning
_KEY_COST: Final = 16  # of scrypt

# What takes long, opens ports or starts processes. What comes before it is the real program.
_WORK: Final = (
    *("sfnode.cli.joining.node_run.Daemon", "sfnode.doctor.Examination.run", "sfnode.testnet.LocalNetwork.run"),
    *("sfnode.cli.eval.evaluate_states", "sfnode.worker.audit_measuring.audit_messages"),
    *(
        "sfnode.training.model_questions.ask_model",
        "sfnode.training.bench.bench_step",
    ),
    *("sfnode.training.bench.bench_answer", "sfnode.training.devices.product_speeds"),
    *("sfnode.training.export.export_model", "sfnode.training.export.export_adapter"),
    "sfnode.training.calibration.calibrate",
    "sfnode.storage.data_directory.DataDirectory.remove",
)
_ASYNC: Final = ("evaluate_states", "audit_messages", "run")


class Stuck(Exception):
    """The command waits, or computes, for ever."""


@dataclass(frozen=True, slots=True)
class Called:
    """How a command ended. ``crash``: the exception that it let through, which a user sees as a traceback."""

    code: int
    stdout: str
    stderr: str
    crash: BaseException | None

    @property
    def errors(self) -> list[str]:
        """The lines that say what is wrong."""
        return [line.removeprefix("Error: ") for line in self.stderr.splitlines() if line.startswith("Error: ")]

    @property
    def is_accepted(self) -> bool:
        """Whether the command did what was asked, or would have begun to."""
        return self.crash is None and (self.code == 0 or self.errors == [REACHED])


class _Crash:
    """Keeps the exception that ends its block."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None


def call(*arguments: str, stdout: io.TextIOWrapper | None = None) -> Called:
    """Run one command; ``stdout`` in place of one that is kept."""
    kept, said, code, crash = io.StringIO(), io.StringIO(), 0, _Crash()
    with (
        mock.patch.object(sys, "argv", ["sfnode", *arguments]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO())),
        contextlib.redirect_stdout(stdout or kept),
        contextlib.redirect_stderr(said),
        crash,
        _watched(),
        log_as_it_was(),
        signals_as_they_were(),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return Called(code, kept.getvalue(), said.getvalue(), crash.error)


@contextlib.contextmanager
def short_of_work() -> Iterator[None]:
    """Commands end where their work would begin; memory is short, and a passphrase is stretched a little only."""
    with contextlib.ExitStack() as stack:
        for name in _WORK:
            ends = _reached_later if name.rpartition(".")[2] in _ASYNC else _reached
            stack.enter_context(mock.patch(name, ends))
        stack.enter_context(mock.patch.object(keys, "_N", _KEY_COST))
        stack.enter_context(mock.patch.object(described_model, "describe_run", _once(described_model.describe_run)))
        decoded = functools.cache(data_directory.decode_run_untrusted)
        stack.enter_context(mock.patch.object(data_directory, "decode_run_untrusted", decoded))
        # Nothing moves it: what would is stopped.
        stack.enter_context(mock.patch.object(shared_model, "SharedModel", functools.cache(shared_model.SharedModel)))
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + _MEMORY, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _reached(*_: object, **__: object) -> NoReturn:
    raise OperatorError(REACHED)


async def _reached_later(*_: object, **__: object) -> NoReturn:
    raise OperatorError(REACHED)


def _once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, computed once for equal arguments."""
    known: dict[str, Any] = {}

    @functools.wraps(function)
    def remembered(*arguments: object) -> Any:
        key = repr(arguments)
        if key not in known:
            known[key] = function(*arguments)
        return known[key]

    return remembered


def _data_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[5]) * resource.getpagesize()


@dataclass(slots=True)
class _Watch:
    """Looks now and then at what a call has computed so far, in seconds: at each look, from the first one on."""

    looks_s: list[float] = field(default_factory=list)

    def look(self, *_: object) -> None:
        self.looks_s.append(time.process_time())
        latest = self.looks_s[-_STILL_LOOKS:]
        is_still = len(latest) == _STILL_LOOKS and latest[-1] - latest[0] < _STILL_S
        if is_still or self.looks_s[-1] - self.looks_s[0] > _COMPUTING_S_MAX:
            raise Stuck(f"{len(self.looks_s) * _LOOK_S:.0f} s, {self.looks_s[-1] - self.looks_s[0]:.1f} of computing")


@contextlib.contextmanager
def _watched() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _Watch().look)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def names_of(parameter: click.Parameter) -> tuple[str, ...]:
    """By what an error may call a parameter."""
    words = (parameter.name or "").split("_")
    return (*parameter.opts, parameter.human_readable_name, *(word for word in words if len(word) > 3))
