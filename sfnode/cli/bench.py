"""``sfnode bench``: what a step and an apply cost, always as a ratio within one run."""

from __future__ import annotations

import json
from typing import Any

import click

from sfnode.cli.extras import check_can_train
from sfnode.cli.options import POSITIVE, dtype_option, json_option


@click.group()
def bench() -> None:
    """Measure this machine against what you would use instead."""


@bench.command()
@click.option(
    "--shape", default="opt-125m", show_default=True, help="Model shape, random weights: opt-125m, opt-1.3b ..."
)
@click.option("--rows", type=POSITIVE, default=16, show_default=True, help="Examples per side.")
@click.option("--tokens", type=POSITIVE, default=64, show_default=True, help="Tokens per example.")
@dtype_option
@click.option("--repeats", type=POSITIVE, default=5, show_default=True, help="Rounds; the median is reported.")
@json_option
def step(shape: str, rows: int, tokens: int, dtype: str, repeats: int, is_json: bool) -> None:
    """One step against bare forward passes over the same rows, and against MeZO's in-place step.

    \b
    Example: sfnode bench step --shape opt-125m --rows 16 --tokens 64 --dtype fp32
    """
    check_can_train()
    from sfnode.training.bench import bench_step  # imports torch

    _print(bench_step(shape=shape, rows=rows, tokens=tokens, dtype=dtype, repeats=repeats), is_json)


@bench.command()
@click.option("--shape", default="opt-125m", show_default=True, help="Model shape.")
@click.option("--updates", type=POSITIVE, default=1_024, show_default=True, help="Messages to apply.")
@json_option
def apply(shape: str, updates: int, is_json: bool) -> None:
    """Apply verified updates to the coefficients, against adding each one's dense direction to the weights.

    \b
    Example: sfnode bench apply --shape opt-125m --updates 1024 --json
    """
    check_can_train()
    from sfnode.training.bench import bench_apply  # imports torch

    _print(bench_apply(shape=shape, updates=updates), is_json)


def _print(fields: dict[str, Any], is_json: bool) -> None:
    if is_json:
        click.echo(json.dumps(fields))
        return
    width = max(map(len, fields))
    for name, value in fields.items():
        click.echo(f"{name:<{width}}  {value:.4g}" if isinstance(value, float) else f"{name:<{width}}  {value}")
