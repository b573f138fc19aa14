"""Child processes for callers in trio: a child lives as long as a block, and may send lines to its parent."""

import subprocess
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import trio

from sfnode.children.child_program import Program


@asynccontextmanager
async def running(program: Program, *, is_heard: bool, leave_s: float = 0.0) -> AsyncIterator[trio.Process]:
    """Run a program while the block runs. OSError if it cannot be started.

    After the block its standard input and output close, and it is killed if it still runs, ``leave_s`` seconds after a
    SIGTERM if that is not 0. Its standard error is ours, and its output discarded unless it ``is_heard``.
    """
    process = await trio.lowlevel.open_process(
        program.command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if is_heard else subprocess.DEVNULL,
        env=program.environment,
        cwd=program.folder,
        start_new_session=True,  # Ctrl-C reaches only this process, which then ends the child
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
    process.kill()  # does nothing if it has ended
    await process.wait()


async def printed_lines(process: trio.Process) -> AsyncGenerator[bytes, None]:
    """Yield the complete lines that a child prints, without their line ends, until its output ends.

    A caller that may stop before that closes the generator (`contextlib.aclosing`).
    """
    assert process.stdout is not None
    rest = b""
    async for data in process.stdout:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line
