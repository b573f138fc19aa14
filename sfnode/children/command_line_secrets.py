"""Hides secrets in the command line of this process, which other users of the machine can read.

A join may carry an invitation, and the first who claims it owns it. `ps` reads the memory where the system has put the
command line, so text that is overwritten there disappears from the process list. Until Python is up, about 0.1 s after
the start, a program that polls can still read it. The safe ways are a file and standard input.

No library for process titles is used. They replace the whole line, but an operator wants to see the rest of it; and
they need a compiled module for what takes two ctypes calls here.
"""

import ctypes
import re
import sys
from pathlib import Path

_ARG_START = 48 - 3  # counted from the third field of proc(5): the fields before it may hold spaces
_SECRET = re.compile(rb"invite:|sfnode:v[0-9]+\.", re.IGNORECASE)  # how invitations and join strings begin
_OPTION = b"--invite"
_GIVEN = _OPTION + b"="
_STAYS = (b"-", b"/", b"@")  # a word that begins so does not continue a string that the shell has split


def hide_secrets() -> None:
    """Cover invitations in the command line of this process; Linux only, elsewhere it stays as it is."""
    if sys.platform != "linux":
        return
    try:
        line = Path("/proc/self/cmdline").read_bytes()
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = map(int, fields[_ARG_START : _ARG_START + 2])
    except (OSError, ValueError):
        return
    covered = cover(line)
    # Overwrite only if the memory at these addresses holds exactly the line that the kernel shows.
    if covered != line and start and end - start == len(line) and ctypes.string_at(start, len(line)) == line:
        ctypes.memmove(start, covered, len(covered))


def cover(line: bytes) -> bytes:
    """Return a command line with each byte of its secrets replaced by a star; each word ends in a zero byte."""
    words = line.split(b"\0")
    is_covered = False  # whether the word before was covered; a shell splits a string that contains white space
    for number, word in enumerate(words):
        # Keep the part of a word before its secret; cover all of a word that continues or is a secret.
        is_value = number > 0 and words[number - 1] == _OPTION
        if begins := _SECRET.search(word):
            kept = begins.start()
        elif word.startswith(_GIVEN) and not word.startswith(_STAYS, len(_GIVEN)):
            kept = len(_GIVEN)
        else:
            kept = 0 if (is_value or is_covered) and not word.startswith(_STAYS) else len(word)
        is_covered = kept < len(word)
        words[number] = word[:kept] + b"*" * (len(word) - kept)
    return b"\0".join(words)
