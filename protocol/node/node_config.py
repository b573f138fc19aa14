"""The choices of one node's operator for the core. Other nodes neither know nor need them."""

from dataclasses import dataclass
from enum import StrEnum


class SnapshotUse(StrEnum):
    """When a joiner trains on an unproved snapshot. AUTO: when it is far behind in a run that is not open."""

    NEVER = "never"
    AUTO = "auto"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Local choices of one node.

    Attributes:
        is_training: whether this node contributes updates.
        expects_peers: whether it knows of other nodes, which it must ask for its own highest round before signing.
        neighbours_min: number of neighbours to wait for before the first step.
        reserved_step: highest step that the store holds a reservation for; -1 for none.
        first_request: u32, drawn anew at each start: requests are numbered after it (SPEC 8.4.1).
        snapshot, snapshot_authors_min: whether to train on a snapshot before it is proved, and the least number of
            authors who must attest it.
    """

    is_training: bool = True
    expects_peers: bool = False
    neighbours_min: int = 0
    reserved_step: int = -1
    first_request: int = 0
    snapshot: SnapshotUse = SnapshotUse.NEVER
    snapshot_authors_min: int = 3
