"""What the converting process may take from the machine, once the libraries are loaded and before a file is read."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_SLACK_BYTES: Final = 1 << 30  # what the libraries take beside the tensors: parsing a vocabulary, threads, copies


def allow(*, memory: int, file: int) -> None:
    """From now on the process may take ``memory`` bytes more, and write no file of more than ``file`` bytes.

    Beyond that: MemoryError (or RuntimeError of torch), OSError. Where the system knows no such limit there is none.
    """
    with suppress(ValueError, OSError):  # a lower limit is set already
        resource.setrlimit(resource.RLIMIT_FSIZE, (file, file))
    if sys.platform == "linux":  # macOS takes the limit and does not keep to it
        with suppress(ValueError, OSError):
            limit = _address_space() + memory + _SLACK_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _address_space() -> int:
    pages = Path("/proc/self/statm").read_text("ascii").split()[0]
    return int(pages) * resource.getpagesize()
