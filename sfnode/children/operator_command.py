"""Ask a command of the operator's own in lines: one goes in, one comes out, within a time limit. It blocks."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress

from sfnode.children import child_program

_READ_BYTES = 1 << 16
_LINE_BYTES_MAX = 1 << 16  # a program that prints without end must not fill the memory
# It leads the command's process group, and kills all of it once its standard input closes: when this process ends.
_GUARD = ("/bin/sh", "-c", "trap '' HUP INT TERM; read -r _; kill -KILL 0")


class Dialogue:
    """Runs a command; its errors go where this process's errors go. OSError: it cannot be started.

    It ends with this process, however that ends, and so does all that it has started in its process group.
    """

    def __init__(self, words: Sequence[str]) -> None:
        pipe = subprocess.PIPE
        self._guard = subprocess.Popen(_GUARD, stdin=pipe, stdout=subprocess.DEVNULL, bufsize=0, process_group=0)
        try:
            self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, bufsize=0, process_group=self._guard.pid)
        except OSError:
            child_program.end(self._guard)
            raise
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._input, False)

    def ask(self, line: bytes, limit_s: float) -> bytes:
        """Send a line; return what the command prints, one line without its end, or all that it says out of turn.

        TimeoutError after ``limit_s``; EOFError: it has ended, or prints no end of line. Then `end` it.
        """
        until, unsent, said = time.monotonic() + limit_s, line + b"\n", b""
        with selectors.DefaultSelector() as ready:
            ready.register(self._output, selectors.EVENT_READ)
            if ready.select(0):
                return self._read(0) + b"... before it was asked"
            ready.register(self._input, selectors.EVENT_WRITE)
            while b"\n" not in said:
                may = [key.fd for key, _ in ready.select(until - time.monotonic())]
                if time.monotonic() >= until:
                    raise TimeoutError
                if self._output in may:
                    said += self._read(len(said))
                if self._input in may and not (unsent := unsent[self._written(unsent) :]):
                    ready.unregister(self._input)
        return said.removesuffix(b"\n")  # with all that it said, if that was more than a line

    def end(self) -> None:
        """End the command and all that it has started at once. Call it once."""
        with suppress(OSError):  # all have ended
            os.killpg(self._guard.pid, signal.SIGKILL)
        for process in (self._process, self._guard):
            child_program.end(process)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self, held: int) -> bytes:
        data = os.read(self._output, _READ_BYTES)
        if not data or held > _LINE_BYTES_MAX:
            raise EOFError
        return data

    def _written(self, data: bytes) -> int:
        try:
            return os.write(self._input, data)
        except BrokenPipeError:
            raise EOFError from None
