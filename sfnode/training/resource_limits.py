"""Limit what a process that reads a stranger's file takes, once libraries are loaded and before it reads the file."""

import resource
import sys
from contextlib import suppress
from pathlib import Path

_SLACK_BYTES = 1 << 30  # what the libraries take besides the tensors: parsing a vocabulary, threads, copies


def allow(*, memory: int, file: int) -> None:
    """Limit the process to ``memory`` more bytes from now on, and each file that it writes to ``file`` bytes.

    Beyond that: MemoryError (or RuntimeError of torch), OSError. Systems without such a limit set none.
    """
    with suppress(ValueError, OSError):  # a lower limit is set already
        resource.setrlimit(resource.RLIMIT_FSIZE, (file, file))
    if sys.platform == "linux":  # macOS accepts the limit but does not enforce it
        with suppress(ValueError, OSError):
            pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])  # of the address space now
            limit = pages * resource.getpagesize() + memory + _SLACK_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
