"""Door: `Replica`. The state that the sets imply: the coefficients, their digest, and snapshots of them."""

from protocol.state import snapshot as snapshot, snapshot_proof as snapshot_proof
from protocol.state.coefficients import (
    CoefficientLayout as CoefficientLayout,
    Coefficients as Coefficients,
    view_exp as view_exp,
)
from protocol.state.leave_one_out import LeavingOut as LeavingOut, effects_of_leaving_out as effects_of_leaving_out
from protocol.state.recount import Recount as Recount
from protocol.state.replica import Replica as Replica
