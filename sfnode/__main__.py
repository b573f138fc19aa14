"""``sfnode``, and ``python -m sfnode``."""

import gc
import sys

if sys.platform == "win32":  # before any import: most modules cannot even be imported there
    sys.exit("Error: sfnode needs Linux or macOS: its worker speaks over a Unix socket (Windows: use WSL)")

# What is imported makes no garbage and stays to the end. To look for some meanwhile, and once more when the process
# ends, is a quarter of what `sfnode --version` takes.
gc.disable()
try:
    from sfnode.cli import main
except KeyboardInterrupt:  # the commands take a second to import: then, too, Ctrl-C shows no traceback
    sys.exit("Aborted!")
finally:
    gc.freeze()
    gc.enable()

if __name__ == "__main__":
    main()
