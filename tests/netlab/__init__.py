"""Real networks: sfnode processes in network namespaces, joined by veth cables, broken on purpose.

`python -m tests.netlab --help`. Modules beside the tests are imported unprefixed, as pytest does it: their folder must
be on the path before the first of them is.
"""

import sys
from pathlib import Path

_TESTS = str(Path(__file__).resolve().parent.parent)
if _TESTS not in sys.path:
    sys.path.insert(0, _TESTS)
