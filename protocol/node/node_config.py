"""What the operator of one node chooses for the core; never agreed on with others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SnapshotUse(StrEnum):
    """When a joiner trains on a snapshot that it has not proved yet. AUTO: far behind, in a run that is not open."""

    NEVER = "never"
    AUTO = "auto"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Local choices of one node.

    Attributes:
        is_training: whether this node contributes updates.
        expects_peers: it has been told of, or knows, other nodes: ask them for its own highest round before signing.
        neighbours_min: do not start the first step before this many neighbours are there.
        reserved_step: highest step that the store holds a reservation for; -1 for none.
        first_request: u32, drawn anew at each start: requests are numbered from there on (SPEC 8.4.1).
        snapshot, snapshot_authors_min: whether to train on a snapshot before it is proved, and how many authors at
            least must attest it.
    """

    is_training: bool = True
    expects_peers: bool = False
    neighbours_min: int = 0
    reserved_step: int = -1
    first_request: int = 0
    snapshot: SnapshotUse = SnapshotUse.NEVER
    snapshot_authors_min: int = 3
