"""Door: `calibrate` and `recalibrate`. A published basis from a look at the model and some examples.

A zeroth-order estimate is as noisy as the space it searches is large. Two sources make that space small: one
back-propagation (`gradient`), or forward passes alone (`forward`). Whoever reads the basis learns something of the
examples behind it: docs/learning.md says what. No digest and no other node depends on how a basis was made, so floats
and libraries may do here what they like.
"""

from sfnode.training.calibration.found_basis import FoundBasis
from sfnode.training.calibration.sources import basis_of, calibrate, recalibrate

__all__ = ["FoundBasis", "basis_of", "calibrate", "recalibrate"]
