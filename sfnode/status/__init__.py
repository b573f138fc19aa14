"""Door: `Status`. What a running node reports, in figures and in words, and whether it is well."""

from sfnode.status.curve_line import sparkline
from sfnode.status.learning import describe_learning, has_fallen
from sfnode.status.model_progress import ModelProgress, ModelStage, described_bytes
from sfnode.status.node_status import Status, last_status, read_status
from sfnode.status.recent_rate import LossSeries, RecentRate, StepRate, thinned
from sfnode.status.status_detail import LossPoint, News, PeerState, StatusDetail
from sfnode.status.verdict import EXIT_EXCLUDED, EXIT_IDLE, EXIT_NO_PEERS, EXIT_NOT_ADMITTED, judge_status
from sfnode.status.wording import (
    ADMITTED,
    describe_admission,
    describe_directions,
    describe_end,
    describe_evaluations,
    describe_memory,
    describe_own,
    describe_pace,
    describe_peers,
    describe_slips,
    describe_stage,
    describe_time_left,
    own_admission,
    progress_line,
    short_peer,
)

__all__ = [
    "ADMITTED",
    "EXIT_EXCLUDED",
    "EXIT_NOT_ADMITTED",
    "EXIT_IDLE",
    "EXIT_NO_PEERS",
    "LossPoint",
    "LossSeries",
    "ModelProgress",
    "ModelStage",
    "News",
    "PeerState",
    "RecentRate",
    "Status",
    "StatusDetail",
    "StepRate",
    "describe_admission",
    "describe_directions",
    "describe_end",
    "describe_evaluations",
    "describe_learning",
    "describe_memory",
    "describe_own",
    "describe_pace",
    "describe_peers",
    "describe_slips",
    "describe_stage",
    "describe_time_left",
    "described_bytes",
    "has_fallen",
    "judge_status",
    "last_status",
    "own_admission",
    "progress_line",
    "read_status",
    "short_peer",
    "sparkline",
    "thinned",
]
