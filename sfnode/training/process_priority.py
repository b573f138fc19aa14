"""Lower the training worker's priority so that others get the cores."""

import os
import time
from pathlib import Path

_AUTOGROUP = Path("/proc/self/autogroup")
_TRIES = 50
_TRY_AGAIN_S = 0.1


def yield_to_others(niceness: int) -> None:
    """Add ``niceness`` to that of the process, so that the node and the machine's user get the cores first.

    Linux shares cores among sessions first, and uses niceness only within each of them (sched(7), "The autogroup
    feature"). A process that leads a session, as the worker does, therefore sets it for both.
    """
    try:
        niceness = os.nice(niceness)
    except OSError:  # a container that forbids the call: a worker at normal priority is better than none
        return
    if os.getsid(0) != os.getpid():
        return
    for _ in range(_TRIES):
        try:
            _AUTOGROUP.write_text(str(niceness))
        except BlockingIOError:  # the system accepts ten of these writes a second
            time.sleep(_TRY_AGAIN_S)
        except OSError:  # another system, or one without autogroups
            return
        else:
            return
