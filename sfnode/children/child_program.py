"""A module that runs in a process of its own: its command line, environment and priority; ways to run it that block.

`async_child` runs it for callers in trio. `__main__` is what runs inside every child.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

_ROOT = Path(__file__).resolve().parents[2]  # the folder that contains sfnode
_PATH = "PYTHONPATH"
_SAFE = "PYTHONSAFEPATH"  # passes -P on to the processes that a child starts, such as pip's
_PROCESSES = Path("/proc")
_AUTOGROUP = Path("/proc/self/autogroup")
_TRIES = 50  # to write to it
_TRY_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Describes a module to run, and starts it as a child process.

    Attributes:
        module: as ``python -m`` takes it.
        arguments: its command line, which other users of the machine can read.
        variables: additional environment variables.
        leave_s: seconds for an orderly end, after SIGTERM, once its parent is gone; 0: it ends at once.
        prefix: a command to run it with, for instance one that runs it elsewhere.
    """

    module: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    leave_s: float = 0.0
    prefix: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        """Return the whole command line. -P keeps modules in the current folder from being imported."""
        start = [sys.executable, "-P", "-m", "sfnode.children", f"{self.leave_s:g}"]
        return [*self.prefix, *start, self.module, *self.arguments]

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of the child.

        Empty entries of PYTHONPATH are dropped: they mean the current folder, and `export PYTHONPATH=$PYTHONPATH:/x`
        makes one. If sfnode runs from a clone without being installed, the clone is added so that the child finds it.
        """
        entries = [entry for entry in os.environ.get(_PATH, "").split(os.pathsep) if entry]
        is_installed = _ROOT.name in ("site-packages", "dist-packages")
        if not is_installed and str(_ROOT) in sys.path and str(_ROOT) not in entries:
            entries.append(str(_ROOT))
        path = {_PATH: os.pathsep.join(entries)} if entries else {}
        others = {name: value for name, value in os.environ.items() if name != _PATH}
        return {**others, **path, _SAFE: "1", **self.variables}

    @property
    def folder(self) -> str | None:
        """Return where the child starts, None: here. Libraries cannot be loaded from a folder that has been removed."""
        try:
            os.getcwd()
        except OSError:
            return os.path.sep
        return None

    def start(
        self, *, stdout: int | IO[bytes], stderr: int | IO[bytes] | None = None, is_own_session: bool = True
    ) -> subprocess.Popen[bytes]:
        """Start the process. OSError.

        Its standard input is a pipe that stays open while this process lives; the caller has to close it. If
        ``is_own_session``, Ctrl-C at the terminal reaches only this process, which then has to end the child.
        """
        return subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            env=self.environment,
            cwd=self.folder,
            start_new_session=is_own_session,
        )

    def run(self, limit_s: float) -> subprocess.CompletedProcess[str]:
        """Run the process to its end, and return its output. OSError; subprocess.TimeoutExpired after ``limit_s``."""
        with self.start(stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            held, process.stdin = process.stdin, None  # `communicate` would close it
            try:
                said, complaint = process.communicate(timeout=limit_s)
            finally:
                process.stdin = held
                process.kill()
        texts = (said.decode("utf-8", "replace"), complaint.decode("utf-8", "replace"))
        return subprocess.CompletedProcess(self.command, process.returncode, *texts)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process if it still runs, wait for it, and close its standard input."""
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def yield_to_others(niceness: int) -> None:
    """Add ``niceness`` to that of the process, so that the node and the machine's user get the cores first.

    Linux shares cores among sessions first, and uses niceness only within each of them (sched(7), "The autogroup
    feature"). A process that leads a session, as the worker does, therefore sets it for both.
    """
    try:
        niceness = os.nice(niceness)
    except OSError:  # a container that forbids the call: a worker at normal priority is better than none
        return
    if os.getsid(0) != os.getpid():
        return
    for _ in range(_TRIES):
        try:
            _AUTOGROUP.write_text(str(niceness))
            return
        except BlockingIOError:  # the system accepts ten of these writes a second
            time.sleep(_TRY_AGAIN_S)
        except OSError:  # another system, or one without autogroups
            return


class Stillness:
    """Measures how long a process has used almost no processor time, and has not waited for a core either.

    On a busy or old machine a child may take many times longer than elsewhere, or get no core at all for minutes: its
    priority is low. A child that hangs asks for none. So its starter waits by this clock and not by the wall clock.
    """

    _LEAST_S = 0.02  # two ticks of the system's clock
    _ABSENT_S = 60.0  # without a look, which all starters take every few seconds
    _SHARE = 0.01  # of a core: a process that only sleeps and polls uses less

    def __init__(self, pid: int) -> None:
        self.computed_s = 0.0
        self._pid = pid
        self._counted_s, self._since = 0.0, time.monotonic()
        self._looked = self._since

    def look(self) -> float:
        """Return the seconds since the process was last seen computing; since the start if the system does not say."""
        with suppress(psutil.Error, OSError, ValueError, RuntimeError):  # it has ended, or /proc is hidden
            times = psutil.Process(self._pid).cpu_times()
            self.computed_s = times.user + times.system
        waited_s = 0.0
        with suppress(OSError, ValueError, IndexError):  # a thread has just ended, or the system does not say
            for thread in (_PROCESSES / str(self._pid) / "task").iterdir():
                waited_s += int((thread / "schedstat").read_bytes().split()[1]) / 1e9
        now, used_s = time.monotonic(), self.computed_s + waited_s
        if now - self._looked > self._ABSENT_S:  # this process stood still, too: `docker pause`, a debugger
            self._since += now - self._looked
        self._looked = now
        self._counted_s = min(self._counted_s, used_s)  # threads that have ended are not in it any more
        still_s = now - self._since
        # A process that only polls stays below the share, and counts as still.
        if used_s - self._counted_s >= max(self._LEAST_S, self._SHARE * still_s):
            self._counted_s, self._since, still_s = used_s, now, 0.0
        return still_s
