"""Extras of pyproject.toml that this install may lack (a relay needs none): check for them, and say how to add one."""

import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from protocol.errors import OperatorError


def how_to_add(extra: str) -> str:
    """Return the command, which takes the sfnode that is installed: pip asks an index for the extra's packages alone.

    It names this Python, since the `pip` on the path of a pipx user is another one's.
    """
    note = " (docs/install.md says which PyTorch suits this machine)" if extra == "train" else ""
    with_pip, with_uv = (sys.executable, "-m", "pip", "install"), ("uv", "pip", "install", "--python", sys.executable)
    install = with_pip if find_spec("pip") else with_uv
    return f"run `{shlex.join([*install, f'sfnode[{extra}]'])}`{note}"


def check_can_serve_page() -> None:
    """Raise OperatorError unless the packages of the extra ``web`` are installed. Imports none; microseconds."""
    _check("--web", "web", ("hypercorn", "starlette"), ". Without --web the node runs as before")


def check_can_train() -> None:
    """Raise OperatorError unless the packages of the extra ``train`` are installed. Imports none; microseconds."""
    without = ". Without it a node can still store, serve and flood: sfnode join --relay"
    _check("this", "train", ("torch", "transformers", "safetensors"), without)


def check_can_add_noise() -> None:
    """Raise OperatorError unless the package of the extra ``privacy`` is installed. Imports none; microseconds."""
    _check("--noise", "privacy", ("opendp",))


def _check(what: str, extra: str, packages: Sequence[str], without: str = "") -> None:
    if missing := " and ".join(name for name in packages if find_spec(name) is None):
        raise OperatorError(f"{what} needs {missing}, which this install lacks: {how_to_add(extra)}{without}")
