"""How much memory this process takes, and what the node does about too much of it: it lets inbound neighbours go.

Goal: a node that many dial is not killed for its memory: all of them would lose it. The neighbours that it
dialled itself stay, so it still contributes and hears everything; those that dialled in find others.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import trio

from sfnode.network import bounds

_STATM: Final = Path("/proc/self/statm")  # pages: of the address space, resident, ...


def resident_bytes() -> int | None:
    """What this process holds in memory now, without its children; None where the system does not say."""
    try:
        pages = int(_STATM.read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def unknown_bytes() -> None:
    """For a process that runs several nodes: nobody knows what one of them takes."""


def give_back() -> None:
    """Hand what was freed back to the system, where the C library can be asked for it (glibc). Takes milliseconds."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library
        return None
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """How much this process may take before it lets neighbours go, how that is seen, and how often.

    ``look`` gives bytes; None for as long as nobody knows: then nobody is ever let go.
    """

    bytes_max: int = bounds.MEMORY_BYTES_MAX
    look: Callable[[], int | None] = unknown_bytes
    give_back: Callable[[], None] = give_back
    interval_s: float = bounds.MEMORY_LOOK_S


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """What was seen last. ``let_go``: inbound neighbours, since the start."""

    bytes_max: int
    resident_bytes: int | None = None
    is_full: bool = False
    let_go: int = 0


def is_over(resident: int | None, bytes_max: int) -> bool:
    """Whether more is taken than allowed; never while nobody knows."""
    return resident is not None and resident > bytes_max


def is_full(before: bool, resident: int | None, bytes_max: int) -> bool:
    """Whether no inbound session may begin: from above ``bytes_max`` on, until well below it."""
    return is_over(resident, bytes_max * bounds.MEMORY_AGAIN_PERCENT // 100 if before else bytes_max)


class MemoryGuard:
    """Looks from time to time. Above the limit one neighbour goes at each look, until no inbound one is left."""

    def __init__(self, config: MemoryConfig, let_one_go: Callable[[], bool]) -> None:
        """``let_one_go``: end one inbound session; False when there is none."""
        self.state = MemoryState(bytes_max=config.bytes_max)
        self._config = config
        self._let_one_go = let_one_go

    async def run(self) -> None:
        """Never returns."""
        while True:
            self.look()
            await trio.sleep(self._config.interval_s)

    def look(self) -> None:
        """Look once, and let one inbound neighbour go where that is needed."""
        before, resident = self.state, self._resident()
        is_full_now = is_full(before.is_full, resident, before.bytes_max)
        is_one_gone = is_over(resident, before.bytes_max) and self._let_one_go()
        self.state = MemoryState(
            bytes_max=before.bytes_max,
            resident_bytes=resident,
            is_full=is_full_now,
            let_go=before.let_go + is_one_gone,
        )

    def _resident(self) -> int | None:
        """What is taken, without what was freed: no neighbour is let go for that."""
        resident = self._config.look()
        if is_over(resident, self._config.bytes_max):
            self._config.give_back()
            resident = self._config.look()
        return resident
