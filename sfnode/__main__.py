"""``sfnode``, and ``python -m sfnode``."""

import sys

if sys.platform == "win32":  # before any import: most modules cannot even be imported there
    sys.exit("Error: sfnode needs Linux or macOS: its worker speaks over a Unix socket (Windows: use WSL)")

try:
    from sfnode.cli import main
except KeyboardInterrupt:  # the commands take a second to import: then, too, Ctrl-C shows no traceback
    sys.exit("Aborted!")

if __name__ == "__main__":
    main()
