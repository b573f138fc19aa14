"""The number of files that this process may open, and the number of connections that follows from it.

Goal: inbound connections never use up the files that the store, the status file and the training worker need. macOS
gives a process 256 unless it asks for more.
"""

import resource
from contextlib import suppress

from sfnode.network import bounds


def connections_max() -> int:
    """Raise the limit of open files; return how many inbound connections fit, including those before their hello."""
    return max(1, min(bounds.CONNECTIONS_MAX, allowed_files() - bounds.FILES_BESIDE))


def allowed_files() -> int:
    """Raise the soft limit to OPEN_FILES, or as far as the hard limit allows, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(_finite(hard), bounds.OPEN_FILES)
    if _finite(soft) < wanted:
        with suppress(OSError, ValueError):  # the system has a further limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return _finite(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _finite(limit: int) -> int:
    return bounds.OPEN_FILES if limit == resource.RLIM_INFINITY else limit
