"""Keep this machine awake while the node works, by a tool of the system that does so while another program runs."""

import subprocess
import sys
from collections.abc import Callable
from shutil import which

import trio

# Each runs `cat` and lets the machine sleep again when that ends, which it does with its standard input: so the machine
# may sleep, too, when this process is killed.
_TOOLS = {
    "linux": ("systemd-inhibit", "--what=sleep:idle", "--who=sfnode", "--why=a node trains", "--mode=block", "cat"),
    "darwin": ("caffeinate", "-i", "cat"),
}
_LOOK_S = 1.0
_END_S = 1.0  # then it is killed


async def stay_awake(is_working: Callable[[], bool], report: Callable[[str], None]) -> None:
    """Keep the machine awake while the node works, and let it sleep while the node is paused or the run is over.

    Report once, and return, where the system has no way or refuses.
    """
    tool = _TOOLS.get(sys.platform)
    if tool is None or which(tool[0]) is None:
        report("--keep-awake: this system has neither systemd-inhibit nor caffeinate; keep it awake in its settings")
        return
    is_refused = False
    while not is_refused:
        if is_working():
            is_refused = await _is_refused_while(is_working, tool)
        await trio.sleep(_LOOK_S)
    report(f"--keep-awake: {tool[0]} has ended by itself; this machine may go to sleep")


async def _is_refused_while(is_working: Callable[[], bool], tool: tuple[str, ...]) -> bool:
    """Keep the machine awake while the node works; return whether the system refuses, which ends the tool early.

    OSError: the tool cannot be started.
    """
    process = await trio.lowlevel.open_process(
        tool, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert process.stdin is not None
    try:
        while is_working():
            if process.poll() is not None:
                return True
            await trio.sleep(_LOOK_S)
        return False
    finally:
        with trio.CancelScope(shield=True):
            await process.stdin.aclose()
            with trio.move_on_after(_END_S):
                await process.wait()
            process.kill()
            await process.wait()
