"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

FilePath = click.Path(dir_okay=False, path_type=Path)
FolderPath = click.Path(file_okay=False, path_type=Path)
POSITIVE = click.IntRange(1)
NOT_NEGATIVE = click.IntRange(0)


def json_option(command: F) -> F:
    """``--json``: for programs."""
    return click.option("--json", "is_json", is_flag=True, help="Print JSON for programs.")(command)


def device_options(command: F) -> F:
    """``--device`` and ``--dtype``."""
    command = click.option(
        "--dtype",
        type=click.Choice(["fp32", "bf16", "fp16"]),
        default="fp32",
        show_default=True,
        help="Of the base weights.",
    )(command)
    return click.option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda", "mps"]),
        default="auto",
        show_default=True,
        help="Where the forward passes run.",
    )(command)


def data_dir_option(command: F) -> F:
    """``--data-dir`` of a node that exists."""
    return click.option("--data-dir", type=FolderPath, required=True, help="The node's data directory.")(command)
