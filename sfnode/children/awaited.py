"""Children of callers in trio: a child lives as long as a block, and may say lines to its parent."""

from __future__ import annotations

import subprocess
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from sfnode.children.program import Program

_READ_BYTES = 65_536


@asynccontextmanager
async def running(program: Program, *, is_heard: bool, leave_s: float = 0.0) -> AsyncIterator[trio.Process]:
    """Run it while the block runs; then its standard input closes, and it is killed if that does not end it. OSError.

    Args:
        is_heard: its standard output is for the block; else it goes nowhere. Complaints go to our own standard error.
        leave_s: how long it may take to end, after a SIGTERM, before it is killed.
    """
    process = await trio.lowlevel.open_process(
        program.command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if is_heard else subprocess.DEVNULL,
        env=program.environment,
        start_new_session=True,  # Ctrl-C is for this process, which then ends that one
    )
    try:
        yield process
    finally:
        with trio.CancelScope(shield=True):
            await _end(process, leave_s)


async def _end(process: trio.Process, leave_s: float) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            await stream.aclose()
    if process.poll() is None and leave_s > 0:
        process.terminate()
        with trio.move_on_after(leave_s):
            await process.wait()
    if process.poll() is None:
        process.kill()
    await process.wait()


class LinesOf:
    """The whole lines that a child says, without their ends, until it has ended. No generator: it may be left early."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdout is not None
        self._stream = process.stdout
        self._lines: deque[bytes] = deque()
        self._rest = b""

    def __aiter__(self) -> LinesOf:
        return self

    async def __anext__(self) -> bytes:
        while not self._lines:
            data = await self._stream.receive_some(_READ_BYTES)
            if not data:
                raise StopAsyncIteration
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._lines += lines
        return self._lines.popleft()
