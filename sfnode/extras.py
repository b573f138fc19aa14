"""How to add an extra of pyproject.toml that this install lacks."""

import shlex
import sys
from importlib.util import find_spec


def how_to_add(extra: str) -> str:
    """Return the command, which takes the sfnode that is installed: pip asks an index for the extra's packages alone.

    It names this Python, since the `pip` on the path of a pipx user is another one's.
    """
    note = " (docs/install.md says which PyTorch suits this machine)" if extra == "train" else ""
    with_pip, with_uv = (sys.executable, "-m", "pip", "install"), ("uv", "pip", "install", "--python", sys.executable)
    install = with_pip if find_spec("pip") else with_uv
    return f"run `{shlex.join([*install, f'sfnode[{extra}]'])}`{note}"
