"""``sfnode bench``: measure a training step and its memory, always as a ratio within one run."""

from __future__ import annotations

import json
from collections.abc import Mapping

import click

from sfnode.cli.extras import check_can_train
from sfnode.cli.options import device_option, dtype_option, json_option, number_option, quantised_dtype_option
from sfnode.doctor import plan_memory
from sfnode.training.allocator import keep_freed_memory

_shape_option = click.option(
    "--shape",
    default="opt-125m",
    show_default=True,
    help="Measure a model of this shape, with random weights: opt-125m, opt-1.3b, opt-2.7b, smollm2-135m.",
)
_rows_option = number_option("--rows", 16, "Use this many examples in each forward pass.", most=1 << 16)
_tokens_option = number_option("--tokens", 64, "Use this many tokens per example.", most=1 << 20)
_basis_option = click.option(
    "--basis",
    type=click.Choice(["random", "published", "start"]),
    default="random",
    show_default=True,
    help="Train in `random` bases of rank 32, as the paper does; in a `published` one of rank 1 in every tensor; or in "
    "what `sfnode init` makes, a `start` and one column in the layers that it moves.",
)


@click.group()
def bench() -> None:
    """Measure what training costs on this machine, and compare it with what you would use instead."""
    keep_freed_memory()  # as in the worker; the references run under it, too


@bench.command()
@_shape_option
@_rows_option
@_tokens_option
@dtype_option
@device_option
@_basis_option
@number_option("--repeats", 9, "Measure this many rounds; the median is reported.", most=10_000)
@json_option
def step(shape: str, rows: int, tokens: int, dtype: str, device: str, basis: str, repeats: int, is_json: bool) -> None:
    """Compare one step with forward passes, MeZO in place, AdamW and LoRA; and the peak memory of each.

    \b
    Example: sfnode bench step --shape opt-125m --rows 16 --tokens 64 --dtype fp32
    """
    check_can_train()
    from sfnode.training.bench import BenchBasis, bench_step

    found = bench_step(shape, size=(rows, tokens), dtype=dtype, basis=BenchBasis(basis), repeats=repeats, device=device)
    _print(found, is_json)


@bench.command()
@_shape_option
@_rows_option
@_tokens_option
@quantised_dtype_option
@_basis_option
@json_option
def memory(shape: str, rows: int, tokens: int, dtype: str, basis: str, is_json: bool) -> None:
    """Measure what a training process takes at most, loading and training, and compare it with the plan of `doctor`.

    \b
    Example: sfnode bench memory --shape opt-1.3b --dtype int8
    """
    check_can_train()
    from sfnode.training.bench import BenchBasis, random_files, subjects, worker_peaks

    size = (rows, tokens)
    with random_files(shape) as folder:
        run = subjects.bench_bases(subjects.shape_tensors(shape), BenchBasis(basis), size=size)
        plan = plan_memory(run.manifest, folder, dtype)
        found = worker_peaks(folder, shape, size, dtype, BenchBasis(basis))
    planned = {"load_peak": plan.load_peak, "training_peak": plan.training_peak}
    measured = {name: found[name] for name in planned}
    program = found["program"]
    fields = {
        "shape": shape,
        "rows": rows,
        "tokens": tokens,
        "dtype": dtype,
        "basis": basis,
        "program": program,
        "planned": planned,
        "measured": measured,
        "ratio": {name: planned[name] / measured[name] for name in planned},
        "ratio_without_program": {name: (planned[name] - program) / (measured[name] - program) for name in planned},
    }
    _print(fields, is_json)


def _print(fields: Mapping[str, object], is_json: bool) -> None:
    if is_json:
        click.echo(json.dumps(fields))
        return
    lines = list(_lines(fields))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        click.echo(f"{name:<{width}}  {value}")


def _lines(fields: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    """Return the name and the value of every field; the name of a nested field is its path with dots."""
    found: list[tuple[str, str]] = []
    for name, value in fields.items():
        if isinstance(value, dict):
            found += _lines(value, f"{prefix}{name}.")
        else:
            found.append((prefix + name, f"{value:.4g}" if isinstance(value, float) else str(value)))
    return found
