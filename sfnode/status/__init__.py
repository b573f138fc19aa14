"""Doors: `Status`, `StatusWords`. What a running node reports, in figures and in words, and whether it is well."""

from sfnode.status import author_names as author_names
from sfnode.status.author_names import Names as Names
from sfnode.status.curve_text import sparkline as sparkline, thinned as thinned
from sfnode.status.health import ADMITTED as ADMITTED, Health as Health
from sfnode.status.node_status import (
    LifeStatistics as LifeStatistics,
    ModelProgress as ModelProgress,
    ModelStage as ModelStage,
    Status as Status,
    last_status as last_status,
    read_status as read_status,
)
from sfnode.status.sentences import StatusWords as StatusWords
from sfnode.status.status_detail import (
    CurveStatistics as CurveStatistics,
    LossPoint as LossPoint,
    News as News,
    StatusDetail as StatusDetail,
)
