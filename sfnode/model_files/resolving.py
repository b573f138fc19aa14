"""Finds a model in a process of its own, which may import and download for minutes: the node goes on meanwhile.

``python -m sfnode.model_files.resolving REFERENCE --revision R``. Prints JSON lines, each a list: progress as
``[text, done, total]``, and at the end ``[folder]``, or ``["", error]``. Ends when its standard input closes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading

from protocol.errors import OperatorError
from sfnode.model_files.resolve import resolve_model


def main() -> None:
    """Entry point of the process."""
    parser = argparse.ArgumentParser(description="finds a model; started by the node, not by hand")
    parser.add_argument("reference")
    parser.add_argument("--revision", default="")
    options = parser.parse_args()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        folder = resolve_model(options.reference, options.revision, _tell)
    except OperatorError as error:
        _tell("", str(error))
    else:
        _tell(str(folder.path))


def _tell(*row: str | int) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
