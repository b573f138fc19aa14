"""Whether a node is well, as an exit code."""

from enum import IntEnum


class Health(IntEnum):
    """Says whether a node is well; the values are exit codes of `sfnode status`. 1: none reports, 2: wrong usage."""

    WELL = 0
    NO_PEERS = 3
    NOT_ADMITTED = 4
    EXCLUDED = 5
    IDLE = 6
