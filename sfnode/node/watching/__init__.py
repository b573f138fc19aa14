"""Door: `NodeWatch`. What a running node reports about itself: status file, progress, news for the operator."""

from sfnode.node.watching.learning_curve import LearningCurve
from sfnode.node.watching.network_news import NetworkNews
from sfnode.node.watching.node_watch import NodeWatch
from sfnode.node.watching.status_details import StatusDetails

__all__ = ["LearningCurve", "NetworkNews", "NodeWatch", "StatusDetails"]
