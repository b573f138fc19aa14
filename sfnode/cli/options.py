"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from sfnode.run_builder import MethodChoice

F = TypeVar("F", bound=Callable[..., Any])

FilePath = click.Path(dir_okay=False, path_type=Path)
FolderPath = click.Path(file_okay=False, path_type=Path)
POSITIVE = click.IntRange(1)
NOT_NEGATIVE = click.IntRange(0)

_DEFAULTS = MethodChoice()
_DTYPES = click.Choice(["fp32", "bf16", "fp16"])


def method_options(command: F) -> F:
    """How a new run trains: the options of MethodChoice, the batch, and what is trained."""
    options = (
        _option("batch-rows", POSITIVE, 16, "Examples per step and node."),
        _option("max-tokens", POSITIVE, None, "Longest prompt; longer ones lose their start.  [default: 128 or less]"),
        _option("trainable", str, "linear", "Of linear,embedding,norm,bias."),
        _option("rank", POSITIVE, _DEFAULTS.rank, "Of the subspace; a power of two."),
        _option("core", click.Choice(["canonical", "rademacher"]), _DEFAULTS.core, "A direction's: one sign, or all."),
        _option("scalar", click.Choice(["raw", "normalised"]), _DEFAULTS.scalar, "Gradients as they are, or by rms."),
        _option("directions", POSITIVE, _DEFAULTS.directions, "Per step."),
        _option("local-steps", POSITIVE, _DEFAULTS.local_steps, "Steps per signed envelope."),
        _option("learning-rate", float, _DEFAULTS.learning_rate, "Per message; updates of all nodes add up."),
        _option("schedule", click.Choice(["linear", "constant"]), _DEFAULTS.schedule, "Of the learning rate."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _option(name: str, kind: Any, default: object, text: str) -> Callable[[F], F]:
    return click.option(f"--{name}", type=kind, default=default, show_default=True, help=text)


def dtype_option(command: F) -> F:
    """``--dtype``."""
    return _option("dtype", _DTYPES, "fp32", "Of the weights.")(command)


def json_option(command: F) -> F:
    """``--json``: for programs."""
    return click.option("--json", "is_json", is_flag=True, help="Print JSON for programs.")(command)


def device_options(command: F) -> F:
    """``--device`` and ``--dtype``."""
    command = dtype_option(command)
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
