"""The child's side: ``python -P -m sfnode.children LEAVE_S MODULE ARGUMENT...`` runs it while its parent lives.

It ends with its parent, however the parent ends. Standard input is a pipe, and only the parent holds its other end. It
closes when the parent closes it or dies, by any signal and on every system. Linux can also send a signal when the
parent dies (PR_SET_PDEATHSIG). But that signal comes when the *thread* that started the child ends, and trio starts
children from short-lived threads.
"""

import os
import runpy
import signal
import sys
import threading
import time
from contextlib import suppress


def end_with_parent(leave_s: float) -> None:
    """Wait until standard input closes, then end the process, even in the middle of a forward pass.

    If ``leave_s`` is positive, send SIGTERM first and allow that many seconds for an orderly end.
    """
    with suppress(OSError):
        while os.read(0, 1):  # not sys.stdin: its lock would keep the interpreter from exiting cleanly
            pass
    if leave_s > 0:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(leave_s)
    os._exit(1)


def main() -> None:
    """Run the module that the command line names, and end with the parent."""
    leave_s, module, *arguments = sys.argv[1:]
    threading.Thread(target=end_with_parent, args=(float(leave_s),), daemon=True).start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
