"""How many files and sockets this process may have open, and how many connections it can take therefore.

Goal: whoever opens connections, however many, never takes the files that the store, the status file and the training
worker need. macOS gives a process 256 unless it asks for more.
"""

from __future__ import annotations

import resource
from contextlib import suppress

from sfnode.network import bounds


def connections_max() -> int:
    """How many inbound connections there may be, with those that have only been accepted. Raises the limit first."""
    return max(1, min(bounds.CONNECTIONS_MAX, allowed_files() - bounds.FILES_BESIDE))


def allowed_files() -> int:
    """The soft limit, after asking for OPEN_FILES, or for as many as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(_finite(hard), bounds.OPEN_FILES)
    if _finite(soft) < wanted:
        with suppress(OSError, ValueError):  # the system has a further limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return _finite(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _finite(limit: int) -> int:
    return bounds.OPEN_FILES if limit == resource.RLIM_INFINITY else limit
