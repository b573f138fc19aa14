"""Door: `calibrate` and `recalibrate`. Find a start and a published basis from the model and some examples.

A zeroth-order estimate is as noisy as the space it searches is large. Three sources make that space small: forward
passes alone (`forward`), a short run with back-propagation (`trajectory`), or one gradient (`gradient`). The first two
also find a start. The published file reveals something of its examples: docs/learning.md says what. No digest and no
other node depends on how the file was made, so this code may use floats and libraries freely.
"""

from sfnode.training.calibration.calibration import Calibration
from sfnode.training.calibration.expectation import RateTrial
from sfnode.training.calibration.found_basis import FoundBasis, Judged
from sfnode.training.calibration.renewal_content import renewal_of
from sfnode.training.calibration.renewal_trial import RenewalTrial, TrialPlan
from sfnode.training.calibration.sources import (
    Renewal,
    calibrate,
    calibrate_described,
    new_basis,
    recalibrate,
    try_described,
)

__all__ = [
    "Calibration",
    "FoundBasis",
    "Judged",
    "RateTrial",
    "Renewal",
    "RenewalTrial",
    "TrialPlan",
    "new_basis",
    "calibrate",
    "calibrate_described",
    "recalibrate",
    "renewal_of",
    "try_described",
]
