"""Door: `Bases` and `direction_factors`. From a seed to numbers: bases, directions, examples, scalars."""

from protocol.subspace.bases import Bases, Published
from protocol.subspace.basis_file import (
    START_EXP_MIN,
    BasisContent,
    Start,
    decode_basis_untrusted,
    encode_basis,
    shape_of_basis,
)
from protocol.subspace.directions import (
    Basis,
    DirectionFactors,
    Int8Array,
    canonical_coordinates,
    core_exp,
    direction_factors,
    example_indices,
    rademacher_signs,
    scale_exp,
)
from protocol.subspace.philox import signs, words
from protocol.subspace.quantisation import NORMALISED_UNIT, quantise

__all__ = [
    "Bases",
    "Basis",
    "BasisContent",
    "DirectionFactors",
    "Int8Array",
    "NORMALISED_UNIT",
    "Published",
    "START_EXP_MIN",
    "Start",
    "canonical_coordinates",
    "core_exp",
    "decode_basis_untrusted",
    "direction_factors",
    "encode_basis",
    "example_indices",
    "quantise",
    "rademacher_signs",
    "scale_exp",
    "shape_of_basis",
    "signs",
    "words",
]
