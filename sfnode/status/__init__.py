"""Doors: `Status`, `StatusWords`. What a running node reports, in figures and in words, and whether it is well."""

from typing import TYPE_CHECKING

from sfnode.lazy_faces import lazy_face

if TYPE_CHECKING:
    from sfnode.status import author_names, learning
    from sfnode.status.author_names import Names
    from sfnode.status.health import ADMITTED, Health, admission_of, health_of
    from sfnode.status.node_status import LifeStatistics, ModelProgress, Status, last_status, read_status
    from sfnode.status.sentences import StatusWords
    from sfnode.status.status_detail import CurveStatistics, LossPoint, News, StatusDetail
    from sfnode.status.text_curve import sparkline, thinned
else:
    __getattr__, __dir__ = lazy_face(__name__, __file__)
