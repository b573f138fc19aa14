"""Find the libp2p that setup.py puts inside a wheel of sfnode: libp2p's own requirements need a compiler."""

import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent.parent / "bundled"


def prefer_bundled() -> bool:
    """Put the bundled libp2p before any other that is installed; return False in a checkout, which has none."""
    if not _FOLDER.is_dir():
        return False
    sys.path.insert(0, str(_FOLDER))  # not at the end: our patches fit this release alone
    return True
