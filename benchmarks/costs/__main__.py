"""What steps, applies, views, replays, audits and memory cost. JSON on stdout; docs/bench.md explains it.

python -m benchmarks.costs step --shape opt-125m --dtype bf16
python -m benchmarks.costs apply --shape opt-2.7b --updates 1024
python -m benchmarks.costs view --shape opt-125m --epochs 4
python -m benchmarks.costs replay --updates 20000
python -m benchmarks.costs audit --shape opt-125m --dtype fp32 --other-dtype bf16
python -m benchmarks.costs memory --shape opt-1.3b --dtype int8
"""

from __future__ import annotations

import click

from benchmarks.command_line import Benchmark
from benchmarks.costs.apply_cost import bench_apply
from benchmarks.costs.audit_cost import bench_audit
from benchmarks.costs.reference_cost import bench_references
from benchmarks.costs.replay_cost import bench_replay
from benchmarks.costs.view_cost import bench_view
from benchmarks.costs.worker_memory import bench_memory
from benchmarks.measures import report
from sfnode.training.allocator import keep_freed_memory
from sfnode.training.bench import BenchBasis
from sfnode.worker_protocol import FLOATS, PRECISIONS

_shape_option = click.option("--shape", default="opt-125m", show_default=True, help="A shape of `sfnode bench`.")
_dtype_option = click.option("--dtype", type=click.Choice(FLOATS), default="fp32", show_default=True)
_rows_option = click.option(
    "--rows", default=16, show_default=True, help="Use this many examples in each forward pass."
)
_tokens_option = click.option("--tokens", default=64, show_default=True, help="Use this many tokens per example.")
_basis_option = click.option(
    "--basis", type=click.Choice([each.value for each in BenchBasis]), default="random", show_default=True
)
_device_option = click.option("--device", default="auto", show_default=True)


@click.group()
def main() -> None:
    """Measure parts of a node's work, each against what one would use instead."""
    keep_freed_memory()  # as in the worker; the references run under it, too


@main.command(cls=Benchmark)
@_shape_option
@_rows_option
@_tokens_option
@_dtype_option
@_device_option
@_basis_option
@click.option("--repeats", default=3, show_default=True, help="Measure this many rounds; the median is reported.")
def step(shape: str, rows: int, tokens: int, dtype: str, device: str, basis: str, repeats: int) -> None:
    """Compare one step with MeZO in place, AdamW and LoRA, and the peak memory of each."""
    size, kind = (rows, tokens), BenchBasis(basis)
    found = bench_references(shape, size=size, dtype=dtype, basis=kind, repeats=repeats, device=device)
    report(found, as_json=True, lines=())


@main.command(cls=Benchmark)
@_shape_option
@click.option("--updates", default=1_024, show_default=True, help="Apply this many messages.")
@_device_option
def apply(shape: str, updates: int, device: str) -> None:
    """Compare applying updates to the coefficients with adding each one's dense direction to the weights."""
    report(bench_apply(shape, updates=updates, device=device), as_json=True, lines=())


@main.command(cls=Benchmark)
@_shape_option
@click.option("--epochs", default=1, show_default=True, help="Give this many epochs coefficients.")
@_dtype_option
@_device_option
def view(shape: str, epochs: int, dtype: str, device: str) -> None:
    """Measure how long it takes to derive the weights exactly, and compare it with a plain fp32 merge."""
    report(bench_view(shape, epochs=epochs, dtype=dtype, device=device), as_json=True, lines=())


@main.command(cls=Benchmark)
@_shape_option
@click.option("--updates", default=20_000, show_default=True, help="Put this many signed messages into the log.")
@click.option("--directions", default=1, show_default=True, help="Put this many scalars into each message.")
def replay(shape: str, updates: int, directions: int) -> None:
    """Measure how long a node needs to start from a log, in microseconds per update for each part of the work."""
    report(bench_replay(shape, updates=updates, directions=directions), as_json=True, lines=())


@main.command(cls=Benchmark)
@_shape_option
@_rows_option
@_tokens_option
@_dtype_option
@click.option("--other-dtype", type=click.Choice(FLOATS), default="bf16", show_default=True)
@_device_option
def audit(shape: str, rows: int, tokens: int, dtype: str, other_dtype: str, device: str) -> None:
    """Measure what an audit of a message costs, and how far two honest nodes of different precision are apart."""
    found = bench_audit(shape, rows=rows, tokens=tokens, dtype=dtype, other_dtype=other_dtype, device=device)
    report(found, as_json=True, lines=())


@main.command(cls=Benchmark)
@_shape_option
@_rows_option
@_tokens_option
@click.option("--dtype", type=click.Choice([*PRECISIONS]), default="fp32", show_default=True)
@_basis_option
def memory(shape: str, rows: int, tokens: int, dtype: str, basis: str) -> None:
    """Measure what a training process takes at most, and compare it with the plan of `sfnode doctor`."""
    report(bench_memory(shape, size=(rows, tokens), dtype=dtype, basis=BenchBasis(basis)), as_json=True, lines=())


if __name__ == "__main__":
    main()
