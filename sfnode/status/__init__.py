"""Doors: `Status`, `StatusWords`. What a running node reports, in figures and in words, and whether it is well."""

from sfnode.status.curve_line import sparkline as sparkline, thinned as thinned
from sfnode.status.names import (
    Names as Names,
    label_of_peer as label_of_peer,
    names_known as names_known,
    short_key as short_key,
    stored_names as stored_names,
)
from sfnode.status.node_status import (
    LifeStatistics as LifeStatistics,
    ModelProgress as ModelProgress,
    ModelStage as ModelStage,
    Status as Status,
    last_status as last_status,
    read_status as read_status,
)
from sfnode.status.status_detail import (
    CurveStatistics as CurveStatistics,
    LossPoint as LossPoint,
    News as News,
    StatusDetail as StatusDetail,
)
from sfnode.status.wording import Health as Health, StatusWords as StatusWords
