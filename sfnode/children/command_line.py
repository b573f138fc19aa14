"""What other users of this machine can read of this process: its command line.

A join may carry an invitation, and the first to claim it has it. `ps` shows the memory in which the system has put the
command line, so that what is overwritten there is gone from the process list. Until Python is up, a tenth of a second
after the start, a program that looks all the time sees it: the safe ways are a file and standard input.

No library for process titles is used: they replace the whole line, of which an operator wants to see the rest, and need
a compiled module for what are two calls of ctypes here.
"""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path
from typing import Final

_CMDLINE: Final = Path("/proc/self/cmdline")
_STAT: Final = Path("/proc/self/stat")
_ARG_START: Final = 48 - 3  # fields of proc(5), counted from the third on: those before may hold spaces
_SECRET: Final = re.compile(rb"invite:|sfnode:v[0-9]+\.", re.IGNORECASE)  # how an invitation and a string to join begin
_OPTION: Final = b"--invite"
_GIVEN: Final = _OPTION + b"="
_STAYS: Final = (b"-", b"/", b"@")  # what begins so is no further word of a string that a shell has split
_COVER: Final = b"*"


def hide_secrets() -> None:
    """Cover invitations in the command line of this process; Linux only, elsewhere it stays as it is."""
    if sys.platform != "linux":
        return
    try:
        line = _CMDLINE.read_bytes()
        start, end = map(int, _STAT.read_bytes().rpartition(b")")[2].split()[_ARG_START : _ARG_START + 2])
    except (OSError, ValueError):
        return
    covered = cover(line)
    # Only where the kernel's own words agree: the memory at these addresses holds what it shows of us.
    if covered != line and start and end - start == len(line) and ctypes.string_at(start, len(line)) == line:
        ctypes.memmove(start, covered, len(covered))


def cover(line: bytes) -> bytes:
    """Return the command line, words that each end in a zero byte, with as many stars in place of what is secret."""
    words = line.split(b"\0")
    is_covered = False  # whether the word before is; a shell makes several words of a string with white space in it
    for number, word in enumerate(words):
        is_value = number > 0 and words[number - 1] == _OPTION
        if begins := _SECRET.search(word):
            kept = begins.start()
        elif word.startswith(_GIVEN) and not word.startswith(_STAYS, len(_GIVEN)):
            kept = len(_GIVEN)
        else:
            kept = 0 if (is_value or is_covered) and not word.startswith(_STAYS) else len(word)
        is_covered = kept < len(word)
        words[number] = word[:kept] + _COVER * (len(word) - kept)
    return b"\0".join(words)
