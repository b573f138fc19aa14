"""Doors: `calibrate` finds the basis of a dense core, without looking at labels; `moving_tensors` chooses its layers.

No digest and no other node depends on how the basis was made, so this code may use floats and libraries freely.
"""

from sfnode.training.calibration.found_basis import EXAMPLES_MIN, FoundBasis, calibrate
from sfnode.training.calibration.residual_writers import moving_tensors
