"""Doors: `Status`, `StatusWords`. What a running node reports, in figures and in words, and whether it is well."""

from typing import TYPE_CHECKING

from sfnode import lazy_face

if TYPE_CHECKING:
    from sfnode.status import author_names as author_names
    from sfnode.status.author_names import Names as Names
    from sfnode.status.curve_line import sparkline as sparkline, thinned as thinned
    from sfnode.status.health import Health as Health
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
    from sfnode.status.wording import StatusWords as StatusWords
else:
    __getattr__, __dir__ = lazy_face(__name__, __file__)
