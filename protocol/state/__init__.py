"""Door: `Replica`. The state that the sets imply: the coefficients, their digest, and snapshots of them."""

from protocol.state.coefficients import CoefficientLayout, Coefficients, view_exp
from protocol.state.leaving_out import LeavingOut, effects_of_leaving_out
from protocol.state.recount import Recount
from protocol.state.replica import Replica
from protocol.state.snapshot import (
    Attestation,
    AttestationCodec,
    Snapshot,
    decode_snapshot_untrusted,
    encode_snapshot,
    may_fit,
)
from protocol.state.snapshot_proof import ProofVerdict, judge, take_snapshot

__all__ = [
    "Attestation",
    "AttestationCodec",
    "CoefficientLayout",
    "Coefficients",
    "ProofVerdict",
    "LeavingOut",
    "Recount",
    "Replica",
    "Snapshot",
    "decode_snapshot_untrusted",
    "encode_snapshot",
    "judge",
    "effects_of_leaving_out",
    "may_fit",
    "take_snapshot",
    "view_exp",
]
