"""Finds a model in a separate process, which may import and download for minutes while the node goes on.

Arguments: ``REFERENCE --revision R``. It prints JSON lists, one per line: progress as ``[text, done, total]``, and at
the end ``[folder]`` or ``["", error]``.
"""

import argparse
import json
import sys

from protocol.errors import OperatorError
from sfnode.model_files.resolve import resolve_model


def main() -> None:
    """Find the model that the command line names, and print the result."""
    parser = argparse.ArgumentParser(description="finds a model; started by the node, not by hand")
    parser.add_argument("reference")
    parser.add_argument("--revision", default="")
    options = parser.parse_args()
    try:
        folder = resolve_model(options.reference, options.revision, _tell)
    except OperatorError as error:
        _tell("", str(error))
    else:
        _tell(str(folder.path))


def _tell(*row: str | int) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
