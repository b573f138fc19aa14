"""The child's side: ``python -P -m sfnode.children LEAVE_S MODULE ARGUMENT...`` runs it while its parent lives."""

from __future__ import annotations

import runpy
import sys
import threading

from sfnode.children.end_with_parent import end_with_parent


def main() -> None:
    """Run the module that the command line names, and end with the parent."""
    leave_s, module, *arguments = sys.argv[1:]
    threading.Thread(target=end_with_parent, args=(float(leave_s),), daemon=True).start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
