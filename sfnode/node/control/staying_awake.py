"""Keeps the machine awake while the node works, and lets it sleep while the node is paused or the run is over."""

from collections.abc import Callable

import trio

from sfnode.children import sleep_inhibitor
from sfnode.reporter import Reporter

_LOOK_S = 1.0


async def stay_awake(is_working: Callable[[], bool], reporter: Reporter) -> None:
    """Do so until cancelled; report once, and return, where the system has no way or refuses."""
    if not (tool := sleep_inhibitor.waking_tool()):
        text = "--keep-awake: this system has neither systemd-inhibit nor caffeinate; keep it awake in its settings"
        reporter.event("not_awake", text)
        return
    is_refused = False
    while not is_refused:
        if is_working():
            is_refused = await _is_refused_while(is_working, tool)
        await trio.sleep(_LOOK_S)
    reporter.event("not_awake", f"--keep-awake: {tool[0]} has ended by itself; this machine may go to sleep")


async def _is_refused_while(is_working: Callable[[], bool], tool: tuple[str, ...]) -> bool:
    """Keep the machine awake while the node works; return whether the system refuses, which ends it early."""
    async with sleep_inhibitor.awake(tool) as process:
        while is_working():
            if process.poll() is not None:
                return True
            await trio.sleep(_LOOK_S)
    return False
