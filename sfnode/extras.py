"""How to add an extra of pyproject.toml that this install lacks."""

import shlex
import sys


def how_to_add(extra: str) -> str:
    """Return the command, which takes the sfnode that is installed: pip asks an index for the extra's packages alone.

    It names this Python, since the `pip` on the path of a pipx user is another one's.
    """
    note = " (docs/install.md says which PyTorch suits this machine)" if extra == "train" else ""
    return f"run `{shlex.quote(sys.executable)} -m pip install 'sfnode[{extra}]'`{note}"
