"""Door: `Overseer`. Whether the node works now, and if not, why."""

from sfnode.node.control.decision import WorkLimits, work_limits
from sfnode.node.control.overseer import Overseer

__all__ = ["Overseer", "WorkLimits", "work_limits"]
