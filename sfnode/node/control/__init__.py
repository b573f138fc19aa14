"""Doors: `Overseer`, `decide`. Whether the node works now, and if not, why."""

from sfnode.node.control.decision import Moment, Pause, PauseReason, WorkLimits, decide, work_limits
from sfnode.node.control.overseer import Overseer

__all__ = ["Moment", "Overseer", "Pause", "PauseReason", "WorkLimits", "decide", "work_limits"]
