"""Doors: `sources` and `Calibration`. Find a start and a published basis from the model and some examples.

A zeroth-order estimate is as noisy as the space it searches is large. Three sources make that space small: forward
passes alone (`forward`), a short run with back-propagation (`trajectory`), or one gradient (`gradient`). The first two
also find a start. The published file reveals something of its examples: docs/learning.md says what. No digest and no
other node depends on how the file was made, so this code may use floats and libraries freely.
"""

from sfnode.training.calibration import dense as dense, sources as sources
from sfnode.training.calibration.calibration import Calibration as Calibration
from sfnode.training.calibration.expectation import RateTrial as RateTrial
from sfnode.training.calibration.found_basis import FoundBasis as FoundBasis, Judged as Judged
from sfnode.training.calibration.renewal_content import renewal_of as renewal_of
from sfnode.training.calibration.renewal_trial import RenewalTrial as RenewalTrial, TrialPlan as TrialPlan
from sfnode.training.calibration.sources import Renewal as Renewal
