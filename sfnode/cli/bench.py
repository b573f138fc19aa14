"""``sfnode bench``: measure a training step and its memory, always as a ratio within one run."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict

import click

from protocol.limits import DIRECTIONS_MAX
from protocol.run import reward
from sfnode.cli.options import device_option, dtype_option, json_option, number_option, print_result
from sfnode.extras import check_can_train
from sfnode.training.allocator import keep_freed_memory

_shape_option = click.option(
    "--shape",
    default="opt-125m",
    show_default=True,
    help="Measure a model of this shape, with random weights: opt-125m, opt-1.3b, opt-2.7b, smollm2-135m.",
)


@click.group()
def bench() -> None:
    """Measure what training costs on this machine, beside inference."""
    keep_freed_memory()  # as in the worker; the forward passes run under it, too


@bench.command()
@_shape_option
@number_option("--rows", 16, "Use this many examples in each forward pass.", most=1 << 16)
@number_option("--tokens", 64, "Use this many tokens per example.", most=2_048)  # positions of all these shapes
@click.option(
    "--basis",
    type=click.Choice(["dense", "random"]),
    default="dense",
    show_default=True,
    help="Train a `dense` core, as `sfnode init` makes it; or in `random` bases of rank 32, as the paper does.",
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


@bench.command()
@_shape_option
@number_option("--answers", 64, "Write this many answers, as a step does.", most=DIRECTIONS_MAX)
@number_option(
    "--samples", 8, "Write this many of them to each prompt.", least=reward.SAMPLES_MIN, most=reward.SAMPLES_MAX
)
@number_option("--tokens", 16, "Use this many tokens per answer.", most=reward.ANSWER_TOKENS_MAX)
@dtype_option
@device_option
@number_option("--repeats", 5, "Measure this many rounds; the median is reported.", most=10_000)
@json_option
def answer(shape: str, answers: int, samples: int, tokens: int, dtype: str, device: str, repeats: int) -> None:
    """Compare a message of a run that learns from rewards with the writing of as many answers by transformers.

    \b
    Example: sfnode bench answer --shape smollm2-135m --answers 64 --samples 8 --tokens 16
    """
    check_can_train()
    from sfnode.training.bench import AnswerSize, bench_answer

    size = AnswerSize(answers=answers, samples=samples, tokens=tokens)
    found = bench_answer(shape, size=size, dtype=dtype, repeats=repeats, device=device)
    print_result(found, "\n".join(_lines(found)))


@bench.command()
@json_option
def dtypes() -> None:
    """Measure how fast this processor multiplies in each number format, as it is held and widened to fp32.

    The figures are 10^9 operations a second in a layer of 576 inputs and 1,536 outputs with 256 tokens. `is_widened`
    says which way a node takes.

    \b
    Example: sfnode bench dtypes --json
    """
    check_can_train()
    from sfnode.training.devices import product_speeds

    speeds = {each.dtype: asdict(each) for each in product_speeds()}
    found = {name: {key: row[key] for key in row if key != "dtype"} for name, row in speeds.items()}
    print_result(found, "\n".join(_lines(found)))


def _lines(fields: Mapping[str, object], path: str = "") -> Iterator[str]:
    """Yield a line for each field; the name of a nested field is its path with dots."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _lines(value, f"{path}{name}.")
        else:
            yield f"{path + name:<35}  {value:.4g}" if isinstance(value, float) else f"{path + name:<35}  {value}"
