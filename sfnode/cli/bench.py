"""``sfnode bench``: what steps, applies, views and replays cost, always as a ratio within one run."""

from __future__ import annotations

import json
from typing import Any

import click

from sfnode.cli.extras import check_can_train
from sfnode.cli.options import POSITIVE, dtype_option, json_option
from sfnode.training.allocator import keep_freed_memory
from sfnode.worker_protocol.precisions import FLOATS

_shape_option = click.option(
    "--shape", default="opt-125m", show_default=True, help="Model shape, random weights: opt-125m, opt-1.3b, opt-2.7b."
)
_device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda", "mps"]),
    default="auto",
    show_default=True,
    help="Where it is measured.",
)


@click.group()
def bench() -> None:
    """Measure this machine against what you would use instead."""
    keep_freed_memory()  # as the worker does; the references have it as well


@bench.command()
@_shape_option
@click.option("--rows", type=POSITIVE, default=16, show_default=True, help="Examples per side.")
@click.option("--tokens", type=POSITIVE, default=64, show_default=True, help="Tokens per example.")
@dtype_option
@_device_option
@click.option("--repeats", type=POSITIVE, default=9, show_default=True, help="Rounds; the median is reported.")
@json_option
def step(**settings: Any) -> None:
    """One step against forward passes, MeZO in place, AdamW and LoRA; and the peak memory of each.

    \b
    Example: sfnode bench step --shape opt-125m --rows 16 --tokens 64 --dtype fp32
    """
    check_can_train()
    from sfnode.training.bench.step_cost import bench_step  # imports torch

    is_json = settings.pop("is_json")
    _print(bench_step(**settings), is_json)


@bench.command()
@_shape_option
@click.option("--updates", type=POSITIVE, default=1_024, show_default=True, help="Messages to apply.")
@_device_option
@json_option
def apply(shape: str, updates: int, device: str, is_json: bool) -> None:
    """Apply verified updates to the coefficients, against adding each one's dense direction to the weights.

    \b
    Example: sfnode bench apply --shape opt-2.7b --updates 1024 --json
    """
    check_can_train()
    from sfnode.training.bench.apply_cost import bench_apply  # imports torch

    _print(bench_apply(shape, updates=updates, device=device), is_json)


@bench.command()
@_shape_option
@click.option("--epochs", type=POSITIVE, default=1, show_default=True, help="Epochs with coefficients.")
@dtype_option
@_device_option
@json_option
def view(shape: str, epochs: int, dtype: str, device: str, is_json: bool) -> None:
    """Derive the weights from the base model and the coefficients, exactly, against a plain fp32 merge.

    \b
    Example: sfnode bench view --shape opt-125m --epochs 4
    """
    check_can_train()
    from sfnode.training.bench.view_cost import bench_view  # imports torch

    _print(bench_view(shape, epochs=epochs, dtype=dtype, device=device), is_json)


@bench.command()
@_shape_option
@click.option("--updates", type=POSITIVE, default=20_000, show_default=True, help="Signed messages in the log.")
@click.option("--directions", type=POSITIVE, default=1, show_default=True, help="Scalars per message: 1 to 16.")
@json_option
def replay(shape: str, updates: int, directions: int, is_json: bool) -> None:
    """Start from a log: decode, verify, put, sum, digest; microseconds of each per update.

    \b
    Example: sfnode bench replay --updates 20000 --json
    """
    check_can_train()
    from sfnode.training.bench.replay_cost import bench_replay  # imports torch

    _print(bench_replay(shape, updates=updates, directions=directions), is_json)


@bench.command()
@_shape_option
@click.option("--rows", type=POSITIVE, default=16, show_default=True, help="Examples per side.")
@click.option("--tokens", type=POSITIVE, default=64, show_default=True, help="Tokens per example.")
@dtype_option
@click.option(
    "--other-dtype",
    type=click.Choice(FLOATS),
    default="bf16",
    show_default=True,
    help="Of another honest node.",
)
@_device_option
@json_option
def audit(**settings: Any) -> None:
    """Measure a message again: what it costs, and how far two honest nodes of different precision are apart.

    \b
    Example: sfnode bench audit --shape opt-125m --dtype fp32 --other-dtype bf16
    """
    check_can_train()
    from sfnode.training.bench.audit_cost import bench_audit  # imports torch

    is_json = settings.pop("is_json")
    _print(bench_audit(**settings), is_json)


def _print(fields: dict[str, Any], is_json: bool) -> None:
    if is_json:
        click.echo(json.dumps(fields))
        return
    lines = list(_lines(fields))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        click.echo(f"{name:<{width}}  {value}")


def _lines(fields: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Name and value of every field; nested ones by their path."""
    found: list[tuple[str, str]] = []
    for name, value in fields.items():
        if isinstance(value, dict):
            found += _lines(value, f"{prefix}{name}.")
        else:
            found.append((prefix + name, f"{value:.4g}" if isinstance(value, float) else str(value)))
    return found
