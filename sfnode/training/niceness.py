"""How the training worker leaves the cores to others."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

_AUTOGROUP: Final = Path("/proc/self/autogroup")
_TRIES: Final = 50
_TRY_AGAIN_S: Final = 0.1


def yield_to_others(niceness: int) -> None:
    """Take little of a core that the node, or the machine's user, wants. ``niceness`` is added to that of the process.

    Linux deals cores out to sessions first, and by niceness only within each of them (sched(7), "The autogroup
    feature"): a process with a session of its own, as the worker has, says it for both.
    """
    try:
        niceness = os.nice(niceness)
    except OSError:  # a container that forbids the call: better a worker that is not nice than none
        return
    if os.getsid(0) != os.getpid():
        return
    for _ in range(_TRIES):
        try:
            _AUTOGROUP.write_text(str(niceness))
        except BlockingIOError:  # the system takes ten of these in a second
            time.sleep(_TRY_AGAIN_S)
        except OSError:  # another system, or one without autogroups
            return
        else:
            return
