"""Door: `Replica`. The state that the sets imply: the coefficients, their digest, and snapshots of them."""

from protocol.state import snapshot, snapshot_proof
from protocol.state.coefficients import CoefficientLayout, Coefficients, Int64Array, view_exp
from protocol.state.leave_one_out import LeavingOut, effects_of_leaving_out
from protocol.state.replica import Replica
