"""How a child process ends with its parent, however the parent ends.

Standard input is a pipe, and only the parent holds its other end. It closes when the parent closes it or dies, by any
signal and on every system. Linux can also send a signal when the parent dies (PR_SET_PDEATHSIG). But that signal comes
when the *thread* that started the child ends, and trio starts children from short-lived threads.
"""

from __future__ import annotations

import os
import signal
import time


def end_with_parent(leave_s: float) -> None:
    """Wait until standard input closes, then end the process, even in the middle of a forward pass.

    If ``leave_s`` is positive, send SIGTERM first and allow that many seconds for an orderly end.
    """
    try:
        while os.read(0, 1):  # not sys.stdin: its lock would keep the interpreter from exiting cleanly
            pass
    except OSError:
        pass
    if leave_s > 0:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(leave_s)
    os._exit(1)
