"""Door: `Overseer`. Whether the node works now, and if not, why."""

from sfnode.node.control.operator_limits import Overseer as Overseer
from sfnode.node.control.staying_awake import stay_awake as stay_awake
from sfnode.node.control.work_or_pause import WorkLimits as WorkLimits, work_limits as work_limits
