"""Door: `Overseer`. Whether the node works now, and if not, why."""

from sfnode.node.control.overseer import Overseer
from sfnode.node.control.work_or_pause import WorkLimits, work_limits
