"""Whether a node is well: the exit code of `sfnode status`, and what is wrong."""

from __future__ import annotations

from typing import Final

from sfnode.status.node_status import Status
from sfnode.status.wording import own_admission

EXIT_NO_PEERS: Final = 3  # 1: no node reports, 2: not an option (click)
EXIT_NOT_ADMITTED: Final = 4
EXIT_EXCLUDED: Final = 5


def judge(current: Status) -> tuple[int, str]:
    """Exit code, and what is wrong; a node whose run is over needs no peers, and a relay no admission."""
    if current.excluded_from is not None:
        return EXIT_EXCLUDED, own_admission(current)
    if not current.peers and current.expects_peers and not current.is_over:
        return EXIT_NO_PEERS, "this node knows of others, and none is connected"
    if current.is_training and not current.is_admitted:
        return EXIT_NOT_ADMITTED, own_admission(current)
    return 0, ""
