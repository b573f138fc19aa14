"""The folders in which nodes keep their state if their operator names none, and how to name a node there in short."""

import os
import re
from pathlib import Path

from protocol.errors import OperatorError
from protocol.run import Manifest
from sfnode.storage import DataDirectory

HOME = Path("~/.sfnode")
_NAME_LENGTH_MAX = 64


def find_data_directory(manifest: Manifest, given: DataDirectory | None) -> DataDirectory:
    """Return the directory of --data-dir, else the run's own one below HOME."""
    # A run's name is free text, perhaps a stranger's, and could lead anywhere.
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", manifest.name).strip("-.")[:_NAME_LENGTH_MAX] or "run"
    return given or DataDirectory(HOME.expanduser() / f"{name}-{manifest.run_id.hex()[:12]}")


def nodes_here() -> list[DataDirectory]:
    """Return the nodes whose state is below HOME, by name, but for those that this user may not look at."""
    home = HOME.expanduser()
    names = sorted(os.listdir(home)) if os.access(home, os.R_OK | os.X_OK) else []
    return [each for each in (DataDirectory(home / name) for name in names) if each.is_node]


def node_called(name: str) -> DataDirectory | None:
    """Return the node below HOME whose folder has this name or begins with it; None: there is none. OperatorError.

    The folder begins with the run's name. OperatorError: several begin so, and none has exactly this name.
    """
    found = [each for each in nodes_here() if name and each.path.name.startswith(name)]
    exact = [each for each in found if each.path.name == name]
    if len(found) > 1 and not exact:
        raise OperatorError(f"{name!r} is the beginning of several nodes: {_listed(found)}. Give more of the name")
    return next(iter(exact or found), None)


def only_node() -> DataDirectory:
    """Return the only node below HOME. OperatorError: there is none, or there are several."""
    found = nodes_here()
    if len(found) == 1:
        return found[0]
    if found:
        raise OperatorError(f"say which node, by its name or with --data-dir: {_listed(found)} (`sfnode list`)")
    text = f"there is no node in {HOME}: name the data directory of one with --data-dir, or join a run (`sfnode join`)"
    raise OperatorError(text, "no_node")


def _listed(nodes: list[DataDirectory]) -> str:
    return ", ".join(each.path.name for each in nodes)
