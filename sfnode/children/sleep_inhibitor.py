"""Keep this machine from going to sleep, by a tool of the system that does so while another program runs."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from shutil import which

import trio

# Each runs `cat` and lets the machine sleep again when that ends, which it does with its standard input: so the machine
# may sleep, too, when this process is killed.
_TOOLS = {
    "linux": ("systemd-inhibit", "--what=sleep:idle", "--who=sfnode", "--why=a node trains", "--mode=block", "cat"),
    "darwin": ("caffeinate", "-i", "cat"),
}


def waking_tool() -> tuple[str, ...]:
    """Return the command line of the system's tool; empty if there is none."""
    tool = _TOOLS.get(sys.platform, ())
    return tool if tool and which(tool[0]) else ()


@asynccontextmanager
async def awake(tool: tuple[str, ...]) -> AsyncIterator[trio.Process]:
    """Keep the machine awake while the block runs. OSError: the tool cannot be started.

    The process that is yielded ends early where the system refuses.
    """
    process = await trio.lowlevel.open_process(
        tool, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert process.stdin is not None
    try:
        yield process
    finally:
        with trio.CancelScope(shield=True):
            await process.stdin.aclose()
            await process.wait()
