"""``sfnode bench``: measure a training step and its memory, always as a ratio within one run."""

from collections.abc import Iterator, Mapping

import click

from sfnode.cli.missing_extras import check_can_train
from sfnode.cli.options import device_option, dtype_option, json_option, number_option, print_result
from sfnode.training.allocator import keep_freed_memory


@click.group()
def bench() -> None:
    """Measure what training costs on this machine, beside inference."""
    keep_freed_memory()  # as in the worker; the forward passes run under it, too


@bench.command()
@click.option(
    "--shape",
    default="opt-125m",
    show_default=True,
    help="Measure a model of this shape, with random weights: opt-125m, opt-1.3b, opt-2.7b, smollm2-135m.",
)
@number_option("--rows", 16, "Use this many examples in each forward pass.", most=1 << 16)
@number_option("--tokens", 64, "Use this many tokens per example.", most=2_048)  # positions of all these shapes
@click.option(
    "--basis",
    type=click.Choice(["dense", "random"]),
    default="dense",
    show_default=True,
    help="Train what `sfnode init` makes, a `dense` core in the last layers; or in `random` bases of rank 32, as the "
    "paper does.",
)
@dtype_option
@device_option
@number_option("--repeats", 9, "Measure this many rounds; the median is reported.", most=10_000)
@json_option
def step(shape: str, rows: int, tokens: int, dtype: str, device: str, basis: str, repeats: int) -> None:
    """Compare one step with bare forward passes of the same rows, and the peak memory of both.

    \b
    Example: sfnode bench step --shape opt-125m --rows 16 --tokens 64 --dtype fp32
    """
    check_can_train()
    from sfnode.training.bench import BenchBasis, bench_step

    found = bench_step(shape, size=(rows, tokens), dtype=dtype, basis=BenchBasis(basis), repeats=repeats, device=device)
    print_result(found, "\n".join(_lines(found)))


def _lines(fields: Mapping[str, object], path: str = "") -> Iterator[str]:
    """Yield a line for each field; the name of a nested field is its path with dots."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _lines(value, f"{path}{name}.")
        else:
            yield f"{path + name:<35}  {value:.4g}" if isinstance(value, float) else f"{path + name:<35}  {value}"
