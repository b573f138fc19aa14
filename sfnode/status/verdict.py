"""Judge whether a node is well: the exit code of `sfnode status`, and what is wrong."""

from __future__ import annotations

from typing import Final

from sfnode.status.node_status import Status
from sfnode.status.wording import own_admission

EXIT_NO_PEERS: Final = 3  # 1: no node reports, 2: not an option (click)
EXIT_NOT_ADMITTED: Final = 4
EXIT_EXCLUDED: Final = 5
EXIT_IDLE: Final = 6


def judge_status(current: Status) -> tuple[int, str]:
    """Return the exit code and what is wrong; 0 and empty: the node is well.

    A node whose run is over needs no peers; a relay needs no admission.
    """
    if current.excluded_from is not None:
        return EXIT_EXCLUDED, own_admission(current)
    if not current.peers and current.expects_peers and not current.is_over:
        why = f": it cannot reach {current.unreached}" if current.unreached else ""
        return EXIT_NO_PEERS, f"this node knows of others, and none is connected{why}"
    if current.is_training and not current.is_admitted:
        return EXIT_NOT_ADMITTED, own_admission(current)
    if current.is_training and not current.is_over and current.paused:
        return EXIT_IDLE, f"this node is paused: {current.paused}"
    if current.is_training and not current.is_over and current.trouble:
        return EXIT_IDLE, f"this node measures nothing now: {current.trouble}"
    return 0, ""
