"""Door: `Bases` and `direction_factors`. From a seed to numbers: bases, directions, examples, scalars."""

from protocol.subspace import basis_file as basis_file
from protocol.subspace.bases import Bases as Bases
from protocol.subspace.basis_file import BasisContent as BasisContent
from protocol.subspace.directions import (
    DirectionFactors as DirectionFactors,
    Int8Array as Int8Array,
    answer_draws as answer_draws,
    canonical_coordinates as canonical_coordinates,
    direction_factors as direction_factors,
    example_indices as example_indices,
    rademacher_signs as rademacher_signs,
    scale_exp as scale_exp,
)
from protocol.subspace.philox import words as words
from protocol.subspace.quantisation import (
    NORMALISED_UNIT as NORMALISED_UNIT,
    quantise as quantise,
    quantise_dense as quantise_dense,
)
