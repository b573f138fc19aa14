"""A deterministic simulation of a whole network of real node cores, which tries to break it.

`python -m tests.simulation --seed N` runs one seed. Modules beside the tests are imported unprefixed, as pytest does
it: their folder must be on the path before the first of them is.
"""

import sys
from pathlib import Path

_TESTS = str(Path(__file__).resolve().parent.parent)
if _TESTS not in sys.path:
    sys.path.insert(0, _TESTS)
