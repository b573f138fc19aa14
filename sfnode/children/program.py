"""A module that runs in a process of its own: its command line, its environment, and callers that may block.

Callers in trio: `awaited`. What every child does by itself: `__main__`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import psutil

_ROOM: Final = "sfnode.children"
_ROOT: Final = Path(__file__).resolve().parents[2]  # where sfnode itself lies
_PATH: Final = "PYTHONPATH"
_SAFE: Final = "PYTHONSAFEPATH"  # says -P to the processes that a child starts in turn, as pip may


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run.

    Attributes:
        module: as ``python -m`` takes it.
        arguments: its command line. Other users of the machine can read it.
        variables: of its environment, besides this process's own.
        leave_s: how long it has to end in good order, after SIGTERM, when its parent is gone; 0: it ends at once.
        prefix: a command that runs it somewhere else.
    """

    module: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    leave_s: float = 0.0
    prefix: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        """The whole command line. -P: whatever lies in the current folder is not imported."""
        start = [sys.executable, "-P", "-m", _ROOM, f"{self.leave_s:g}"]
        return [*self.prefix, *start, self.module, *self.arguments]

    @property
    def environment(self) -> dict[str, str]:
        """Its variables. An empty entry of PYTHONPATH, as `export PYTHONPATH=$PYTHONPATH:/x` makes it, would be the
        current folder; where sfnode is run from a clone without being installed, the child finds it there, too."""
        entries = [entry for entry in os.environ.get(_PATH, "").split(os.pathsep) if entry]
        if _is_run_from_a_clone() and str(_ROOT) not in entries:
            entries.append(str(_ROOT))
        path = {_PATH: os.pathsep.join(entries)} if entries else {}
        others = {name: value for name, value in os.environ.items() if name != _PATH}
        return {**others, **path, _SAFE: "1", **self.variables}

    def start(
        self, *, stdout: int | IO[bytes], stderr: int | IO[bytes] | None = None, is_own_session: bool = True
    ) -> subprocess.Popen[bytes]:
        """Start it; its standard input is open as long as this process lives, and is the caller's to close. OSError.

        ``is_own_session``: Ctrl-C at the terminal is for this process, which then ends that one.
        """
        return subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            env=self.environment,
            start_new_session=is_own_session,
        )

    def run(self, limit_s: float) -> subprocess.CompletedProcess[str]:
        """Run it to its end, and return what it has said. OSError; subprocess.TimeoutExpired after ``limit_s``."""
        process = self.start(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        held, process.stdin = process.stdin, None  # `communicate` would close it
        try:
            said, complaint = process.communicate(timeout=limit_s)
        finally:
            end(process)
            if held is not None:
                held.close()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        texts = (said.decode("utf-8", "replace"), complaint.decode("utf-8", "replace"))
        return subprocess.CompletedProcess(self.command, process.returncode, *texts)


def _is_run_from_a_clone() -> bool:
    """Whether this process has found sfnode in a folder that is no place for installed packages."""
    return _ROOT.name not in ("site-packages", "dist-packages") and str(_ROOT) in sys.path


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill it, if it runs, and let go of its standard input."""
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


class Stillness:
    """For how long a process has used no processor time to speak of.

    On a busy or old machine a child takes many times as long as elsewhere; one that hangs computes nothing. So its
    starter waits by this clock rather than by the wall's.
    """

    _LEAST_S: Final = 0.02  # two ticks of the system's clock
    _SHARE: Final = 0.01  # of a core: a process that sleeps and looks round from time to time takes less

    def __init__(self, pid: int) -> None:
        self.computed_s = 0.0
        self._pid = pid
        self._counted_s, self._since = 0.0, time.monotonic()

    def look(self) -> float:
        """Seconds since it was last seen to compute; since the start, where the system does not say."""
        try:
            times = psutil.Process(self._pid).cpu_times()
            self.computed_s = times.user + times.system
        except (psutil.Error, OSError, ValueError, RuntimeError):
            pass  # it has ended, or /proc is hidden
        now = time.monotonic()
        still_s = now - self._since
        if self.computed_s - self._counted_s >= max(self._LEAST_S, self._SHARE * still_s):
            self._counted_s, self._since, still_s = self.computed_s, now, 0.0
        return still_s
