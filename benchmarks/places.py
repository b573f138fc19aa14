"""Where the benchmarks look for data sets and the small model; docs/research.md says how to get them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

ROOT: Final = Path(os.environ.get("SFNODE_DATA") or Path(__file__).resolve().parents[2] / "shared")
MODELS: Final = ROOT / "models"

data_option = click.option(
    "--data", type=click.Path(path_type=Path), default=ROOT / "data", help="Folder of sst2 and so on, by `make data`."
)
