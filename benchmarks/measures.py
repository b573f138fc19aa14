"""What is measured and how it is reported: CPU seconds of this process, peak memory, one line of JSON or a table."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path


class Stopwatch:
    """CPU seconds of this thread, by part. CPU and not wall time: other work on the machine must not count."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the time of the block to part ``name``."""
        started = time.thread_time()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.thread_time() - started

    @property
    def total(self) -> float:
        """Seconds of all parts."""
        return sum(self.seconds.values())


def memory_mib() -> float:
    """Resident memory of this process now, MiB."""
    return _status_kib("VmRSS") / 1024


def peak_memory_mib() -> float:
    """Largest resident memory of this process so far, MiB."""
    return _status_kib("VmHWM") / 1024


def _status_kib(field: str) -> int:
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))


def say(text: str = "") -> None:
    """One line for people, on stderr while it runs so that stdout stays the result."""
    sys.stderr.write(text + "\n")


def report(result: object, *, as_json: bool, lines: Sequence[str]) -> None:
    """The result on stdout: one JSON document, in which a dataclass is a mapping, or the lines for people."""
    sys.stdout.write((json.dumps(result, indent=1, default=asdict) if as_json else "\n".join(lines)) + "\n")
