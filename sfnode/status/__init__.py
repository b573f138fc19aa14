"""Door: `Status`. What a running node tells of itself, in figures and in words, and whether it is well."""

from sfnode.status.model_progress import ModelProgress, ModelStage, described_bytes
from sfnode.status.node_status import Status, last_status, read_status
from sfnode.status.verdict import EXIT_EXCLUDED, EXIT_NO_PEERS, EXIT_NOT_ADMITTED, judge
from sfnode.status.wording import (
    ADMITTED,
    describe_admission,
    describe_end,
    describe_memory,
    own_admission,
    progress_line,
)

__all__ = [
    "ADMITTED",
    "EXIT_EXCLUDED",
    "EXIT_NOT_ADMITTED",
    "EXIT_NO_PEERS",
    "ModelProgress",
    "ModelStage",
    "Status",
    "describe_admission",
    "describe_end",
    "describe_memory",
    "described_bytes",
    "judge",
    "last_status",
    "own_admission",
    "progress_line",
    "read_status",
]
