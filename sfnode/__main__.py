"""``sfnode``, and ``python -m sfnode``."""

import sys

try:
    from sfnode.cli import main
except KeyboardInterrupt:  # the commands take a second to import: then, too, Ctrl-C shows no traceback
    sys.exit("Aborted!")

if __name__ == "__main__":
    main()
