"""The folder in which a node keeps its state, if its operator names none."""

import os
import re
from pathlib import Path
from typing import Final

from protocol.run import Manifest, is_plain_file_name
from sfnode.storage import DataDirectory

HOME: Final = Path("~/.sfnode")
_NAME_LENGTH_MAX = 64


def find_data_directory(manifest: Manifest, given: DataDirectory | None) -> DataDirectory:
    """Return the directory of --data-dir, else the run's own one below HOME."""
    return given or DataDirectory(default_data_dir(manifest, HOME.expanduser()))


def default_data_dir(manifest: Manifest, home: Path) -> Path:
    """Return the run's folder in ``home``; a folder that an earlier release made is kept."""
    earlier = f"{manifest.name}-{manifest.run_id.hex()[:12]}"  # with the unchanged name
    if is_plain_file_name(earlier) and os.path.isdir(home / earlier):  # False for too long a name, where Path raises
        return home / earlier
    # A run's name is free text, perhaps a stranger's, and could lead anywhere.
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", manifest.name).strip("-.")[:_NAME_LENGTH_MAX] or "run"
    return home / f"{name}-{manifest.run_id.hex()[:12]}"
