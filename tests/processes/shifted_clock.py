"""Runs a Python module under a wall clock that jumps: FILE says by how many seconds it is wrong.

`python shifted_clock.py FILE PYTHON [-P ...] -m MODULE ARGUMENTS`: as a prefix of the command that starts the module.
The steady clock, which measures waiting, stays right, as it does when somebody sets the time of a machine.
"""

from __future__ import annotations

import datetime as datetime_module
import runpy
import sys
import time
from collections.abc import Callable
from datetime import datetime, tzinfo
from pathlib import Path


def shift(offset_s: Callable[[], float]) -> None:
    """Let `time.time`, `time.time_ns` and `datetime.now` of this process be wrong by so much."""
    right = time.time

    class Shifted(datetime):
        """Reads the shifted clock."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Shifted:
            """As in the base class."""
            return cls.fromtimestamp(time.time(), tz)

    time.time = lambda: right() + offset_s()
    time.time_ns = lambda: int(1e9 * time.time())
    datetime_module.datetime = Shifted  # type: ignore[misc]


def _offset_in(path: Path) -> float:
    """Return 0 while somebody writes the file."""
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return 0.0


def main() -> None:
    """Entry point of the process."""
    path, words = Path(sys.argv[1]), sys.argv[2:]
    shift(lambda: _offset_in(path))
    at = words.index("-m") + 1
    sys.argv = words[at:]
    runpy.run_module(words[at], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
