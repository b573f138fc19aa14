"""Deliberate bugs of the real core, each of which must be caught: that is how we know that our checks can fail.

`python -m tests.mutants` runs all of them. Modules beside the tests are imported unprefixed, as pytest does it: the
folder must be on the path before the first of them is.
"""

import sys
from pathlib import Path

_TESTS = str(Path(__file__).resolve().parent.parent)
if _TESTS not in sys.path:
    sys.path.insert(0, _TESTS)
