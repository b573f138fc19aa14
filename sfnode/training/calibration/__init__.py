"""Door: `calibrate`. Find the basis of a dense core from the model and some examples whose labels are not looked at.

No digest and no other node depends on how the basis was made, so this code may use floats and libraries freely.
"""

from sfnode.training.calibration.found_basis import EXAMPLES_MIN, FoundBasis, Progress, calibrate
