"""The memory of this process. Above a limit the node lets inbound neighbours go.

Goal: the system does not kill a popular node for its memory, because all its neighbours would lose it. The neighbours
that it dialled stay, so it still contributes and hears everything; those that dialled in find others.
"""

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import trio

from sfnode.network import bounds

_STATM = Path("/proc/self/statm")  # in pages: address space, resident, ...


def resident_bytes() -> int | None:
    """Return this process's resident memory in bytes, without its children; None if the system does not report it."""
    try:
        pages = int(_STATM.read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def unknown_bytes() -> None:
    """Return None: in a process of several nodes, the memory of one is unknown."""


def give_back() -> None:
    """Return freed memory to the system if the C library supports it (glibc). Takes milliseconds."""
    with suppress(OSError, AttributeError):  # another system, or another C library
        ctypes.CDLL(None).malloc_trim(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """The memory limit of this process, how it is measured, and how often.

    ``look`` returns bytes, or None if they are unknown; then no neighbour is let go.
    """

    bytes_max: int = bounds.MEMORY_BYTES_MAX
    look: Callable[[], int | None] = unknown_bytes
    give_back: Callable[[], None] = give_back
    interval_s: float = bounds.MEMORY_LOOK_S


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """The last measurement. ``let_go``: number of inbound neighbours let go since the start."""

    bytes_max: int
    resident_bytes: int | None = None
    is_full: bool = False
    let_go: int = 0

    def in_words(self) -> str:
        """Return how much memory the process takes, and the effects of a full one."""
        if self.resident_bytes is None:
            return "unknown: this system does not say"
        text = f"{self.resident_bytes >> 20} MiB of {self.bytes_max >> 20} (--memory-max)"
        if self.is_full:
            text += f": no newcomer is let in, and {self.let_go} inbound neighbours were let go"
        return text


def is_full(before: bool, resident: int | None, bytes_max: int) -> bool:
    """Return whether inbound sessions are refused: from above ``bytes_max`` until well below it; False if unknown."""
    return (resident or 0) > (bytes_max * bounds.MEMORY_AGAIN_PERCENT // 100 if before else bytes_max)


class MemoryGuard:
    """Checks the memory at intervals. Above the limit it lets one inbound neighbour go at each check."""

    def __init__(self, config: MemoryConfig, let_one_go: Callable[[], bool]) -> None:
        """``let_one_go`` ends one inbound session; it returns False if there is none."""
        self.state = MemoryState(bytes_max=config.bytes_max)
        self._config = config
        self._let_one_go = let_one_go

    async def run(self) -> None:
        while True:
            self.look()
            await trio.sleep(self._config.interval_s)

    def look(self) -> None:
        """Check the memory once, and let one inbound neighbour go if it is above the limit."""
        before, resident = self.state, self._config.look()
        if (resident or 0) > before.bytes_max:  # first give back freed memory, so that it costs no neighbour
            self._config.give_back()
            resident = self._config.look()
        is_full_now = is_full(before.is_full, resident, before.bytes_max)
        is_one_gone = (resident or 0) > before.bytes_max and self._let_one_go()
        self.state = MemoryState(
            bytes_max=before.bytes_max, resident_bytes=resident, is_full=is_full_now, let_go=before.let_go + is_one_gone
        )
