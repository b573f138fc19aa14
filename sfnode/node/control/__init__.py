"""Door: `Overseer`. Whether the node works now, and if not, why."""

from sfnode.node.control.decision import WorkLimits as WorkLimits, work_limits as work_limits
from sfnode.node.control.overseer import Overseer as Overseer
from sfnode.node.control.staying_awake import stay_awake as stay_awake
