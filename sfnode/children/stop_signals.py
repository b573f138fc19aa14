"""What SIGINT, SIGTERM and SIGHUP do to a command before, while and after it acts.

Python turns Ctrl-C into an exception wherever the program is. While modules are imported, their callbacks may lose it.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType


def _is_node() -> bool:
    return sys.argv[1:2] in (["join"], ["start"])


def heed(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    """Call ``handler`` at these signals, except those that nohup or a shell has ignored; a node hears SIGINT anyway."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN or (number == signal.SIGINT and _is_node()):
            signal.signal(number, handler)


def end_at_once() -> None:
    """Let them end the process at once: it imports modules, and has nothing to tidy up."""
    heed(lambda number, _frame: os._exit(_say_end(number)))


def end_in_order() -> None:
    """Let them raise what ends the command and tidies up: for a node SystemExit, else KeyboardInterrupt."""
    if _is_node():
        heed(lambda number, _frame: sys.exit(_say_end(number)))
    elif signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        heed(signal.SIG_DFL)
    else:
        heed(lambda *_: signal.raise_signal(signal.SIGINT))
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _say_end(number: int) -> int:
    """Say that the command ends before it has begun; return its exit code. A node that is stopped has not failed."""
    name, is_json = signal.Signals(number).name, "--json" in sys.argv
    if _is_node():
        fields: dict[str, object] = {"event": "stopping", "time": round(time.time(), 3), "signal": name}
        stream, code, text = 1, 0, f"stopping on {name}: the node had not started"
    else:
        fields = {"error": {"code": "aborted", "message": "interrupted", "exit_code": 1}}
        stream, code, text = 2, 1, "Aborted!"
    with suppress(OSError):  # the terminal is closed, or nobody reads the output
        os.write(stream, f"{json.dumps(fields) if is_json else text}\n".encode())
    return code
