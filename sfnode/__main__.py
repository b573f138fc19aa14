"""``sfnode``, and ``python -m sfnode``."""

import os
import sys

if sys.platform == "win32":  # before any import: most modules cannot even be imported there
    sys.exit("Error: sfnode needs Linux or macOS: its worker speaks over a Unix socket (Windows: use WSL)")

# `python -m` puts the current folder first on the path, and in the folder of a cloned model may lie a `numpy.py` with
# anything in it. A clone of sfnode that is not installed stays where it is found.
if __name__ == "__main__" and not sys.flags.safe_path:
    _here, _root = sys.path[0], os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.realpath(_here) != os.path.realpath(_root):
        del sys.path[0]

from sfnode.children import stop_signals

stop_signals.end_at_once()  # before all other imports, which take time
from sfnode.children.command_line_secrets import hide_secrets

hide_secrets()
from sfnode.cli import main

if __name__ == "__main__":
    main()
