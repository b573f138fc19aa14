"""python -m tests.repository.niced NICENESS COMMAND...: run a command that leaves the cores to other sessions.

Training workers have sessions of their own, and sessions share the cores whatever the niceness within them: plain
``nice`` would let what computes take what the workers of the tests of real processes need."""

from __future__ import annotations

import os
import sys

from sfnode.training.niceness import yield_to_others

if __name__ == "__main__":
    yield_to_others(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
