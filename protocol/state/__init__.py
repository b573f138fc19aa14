"""Door: `Replica`. The state that the sets imply: the coefficients, their digest, and snapshots of them."""

from protocol.state.coefficients import (
    CoefficientLayout as CoefficientLayout,
    Coefficients as Coefficients,
    view_exp as view_exp,
)
from protocol.state.leaving_out import LeavingOut as LeavingOut, effects_of_leaving_out as effects_of_leaving_out
from protocol.state.recount import Recount as Recount
from protocol.state.replica import Replica as Replica
from protocol.state.snapshot import (
    Attestation as Attestation,
    AttestationCodec as AttestationCodec,
    Snapshot as Snapshot,
    decode_snapshot_untrusted as decode_snapshot_untrusted,
    encode_snapshot as encode_snapshot,
    may_fit as may_fit,
)
from protocol.state.snapshot_proof import ProofVerdict as ProofVerdict, judge as judge, take_snapshot as take_snapshot
