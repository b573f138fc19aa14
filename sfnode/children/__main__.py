"""The child's side: ``python -P -m sfnode.children LEAVE_S MODULE ARGUMENT...`` runs a module until its parent is gone.

Standard input is a pipe whose other end only the parent holds: it closes when the parent closes it or dies, by whatever
signal, on every system. Linux could send a signal at the parent's death (PR_SET_PDEATHSIG) as well; but it does so when
the *thread* ends that started the child, and trio starts children from threads that come and go.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time


def main() -> None:
    """Entry point of each child."""
    leave_s, module, *arguments = sys.argv[1:]
    threading.Thread(target=_end_with_parent, args=(float(leave_s),), daemon=True).start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_with_parent(leave_s: float) -> None:
    """Wait until standard input closes, then end, even in the middle of a forward pass; ``leave_s`` to say goodbye."""
    try:
        while os.read(0, 1):  # not sys.stdin: it has a lock, without which the interpreter cannot end in good order
            pass
    except OSError:
        pass
    if leave_s > 0:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(leave_s)
    os._exit(1)


if __name__ == "__main__":
    main()
