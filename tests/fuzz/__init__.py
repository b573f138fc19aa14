"""Coverage-guided fuzzing of everything that reads bytes from a peer or a file: ``python -m tests.fuzz --help``.

The modules beside the tests are imported by their bare names (``manifests``, ``fuzz.choices``), under pytest as here.
So the folder of the tests goes on the path; ``python -m tests.fuzz`` alone puts only the repository there.
"""

from __future__ import annotations

import sys
from pathlib import Path

_TESTS = str(Path(__file__).resolve().parent.parent)
if _TESTS not in sys.path:
    sys.path.insert(0, _TESTS)
