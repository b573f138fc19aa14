"""Doors: `Status`, `StatusWords`. What a running node reports, in figures and in words, and whether it is well."""

from sfnode.status.curve_line import sparkline, thinned
from sfnode.status.model_progress import ModelProgress, ModelStage
from sfnode.status.node_status import LifeStatistics, Status, last_status, read_status
from sfnode.status.status_detail import CurveStatistics, LossPoint, News, StatusDetail
from sfnode.status.wording import Health, StatusWords, short_peer

__all__ = [
    "CurveStatistics",
    "Health",
    "LifeStatistics",
    "LossPoint",
    "ModelProgress",
    "ModelStage",
    "News",
    "Status",
    "StatusDetail",
    "StatusWords",
    "last_status",
    "read_status",
    "short_peer",
    "sparkline",
    "thinned",
]
