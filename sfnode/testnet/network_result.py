"""Hold the outcome of a test network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sfnode.status import Status
from sfnode.testnet.learnt import Learnt
from sfnode.testnet.picture import CurvePoint


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOutcome:
    """Holds the last status of one node; None: it never reported."""

    name: str
    status: Status | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNetworkResult:
    """Holds the outcome; ``is_agreed``: all nodes and the offline replay have the same state.

    Attributes:
        learnt: how good the model was and is now; None without evaluation data.
    """

    is_agreed: bool
    is_stopped_cleanly: bool
    nodes: list[NodeOutcome]
    state_digests: list[str]
    replayed_digest: str
    learnt: Learnt | None
    curve: list[CurvePoint]
    seconds: float
    picture: Path
    payload_bytes: int

    @property
    def statuses(self) -> list[Status]:
        """Return the statuses of the nodes that have reported."""
        return [node.status for node in self.nodes if node.status is not None]

    @property
    def updates(self) -> int:
        """Return the number of updates that the first node has applied."""
        first = self.nodes[0].status
        return 0 if first is None else first.ledger.updates

    @property
    def forward_rows(self) -> int:
        """Return the number of rows that all nodes have passed forward for their own estimates."""
        return sum(status.training.forward_rows for status in self.statuses)

    @property
    def wire_bytes(self) -> int:
        """Return the number of bytes that all nodes have sent."""
        return sum(status.network.bytes_out for status in self.statuses)
