"""Door: `Bases` and `direction_factors`. From a seed to numbers: bases, directions, examples, scalars."""

from protocol.subspace import basis_file, drawn_examples
from protocol.subspace.basis_file import Bases, BasisContent
from protocol.subspace.directions import (
    Basis,
    DirectionFactors,
    Int8Array,
    canonical_coordinates,
    direction_factors,
    rademacher_signs,
    scale_exp,
)
from protocol.subspace.philox import words
from protocol.subspace.quantisation import NORMALISED_UNIT, quantise, quantise_dense
