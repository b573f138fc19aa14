"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from protocol.run.task import Objective
from sfnode.run.builder import MethodChoice
from sfnode.run.builtin_tasks import BUILTIN_TASKS
from sfnode.worker_protocol.precisions import FLOATS, PRECISIONS

F = TypeVar("F", bound=Callable[..., Any])

FilePath = click.Path(dir_okay=False, path_type=Path)
FolderPath = click.Path(file_okay=False, path_type=Path)
POSITIVE = click.IntRange(1)
NOT_NEGATIVE = click.IntRange(0)

_DEFAULTS = MethodChoice()
_DTYPES = click.Choice(FLOATS)
_PRECISIONS = click.Choice(list(PRECISIONS))
_LIST = "list"
_OBJECTIVES = click.Choice([each.value for each in Objective])


def method_options(command: F) -> F:
    """How a new run trains: the options of MethodChoice, the batch, and what is trained."""
    options = (
        _option("batch-rows", POSITIVE, 16, "Examples per step and node."),
        _option("trainable", str, "linear", "Of linear,embedding,norm,bias."),
        _option("rank", POSITIVE, _DEFAULTS.rank, "Of the subspace; a power of two."),
        _option("core", click.Choice(["canonical", "rademacher"]), _DEFAULTS.core, "A direction's: one sign, or all."),
        _option("scalar", click.Choice(["raw", "normalised"]), _DEFAULTS.scalar, "Gradients as they are, or by rms."),
        _option("directions", POSITIVE, _DEFAULTS.directions, "Per step."),
        _option("sides", click.IntRange(1, 2), _DEFAULTS.sides, "2: central differences; 1: forward ones, cheaper."),
        _option("shares", POSITIVE, _DEFAULTS.shares, "Directions that are probed with the same examples."),
        _option("local-steps", POSITIVE, _DEFAULTS.local_steps, "Steps per signed envelope."),
        _option("learning-rate", float, _DEFAULTS.learning_rate, "Per message; updates of all nodes add up."),
        _option("schedule", click.Choice(["linear", "constant"]), _DEFAULTS.schedule, "Of the learning rate."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def task_options(command: F) -> F:
    """What a run learns: a task known by name, or templates of one's own; the objective; the longest row."""
    options = (
        click.option(
            "--task",
            type=click.Choice([*sorted(BUILTIN_TASKS), _LIST]),
            callback=_list_tasks,
            is_eager=True,
            help="A task known by name; `--task list` shows them.",
        ),
        click.option("--template", help='Prompt with the data\'s fields in braces, e.g. "{sentence} It was".'),
        click.option(
            "--completion",
            help='What follows the prompt instead of a label word: " {choice}" (each of the row\'s choices), '
            '" {response}", or "{text}".',
        ),
        click.option("--labels", help='Label words, comma-separated, spaces kept: " no, yes" are " no" and " yes".'),
        _option("objective", _OBJECTIVES, Objective.LOSS.value, "The loss, or 1 - a metric."),
        _option("max-tokens", POSITIVE, None, "Longest row; a longer prompt loses its start.  [default: 128 or less]"),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _list_tasks(context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value == _LIST:
        for name, task in sorted(BUILTIN_TASKS.items()):
            labels = f"  labels {','.join(task.label_words)!r}" if task.label_words else ""
            completion = f"  completion {task.completion!r}" if task.completion else ""
            click.echo(f"{name:<17} {task.about}\n{'':<17} template {task.template!r}{completion}{labels}")
        context.exit()
    return value


def _option(name: str, kind: Any, default: object, text: str) -> Callable[[F], F]:
    return click.option(f"--{name}", type=kind, default=default, show_default=True, help=text)


def dtype_option(command: F) -> F:
    """``--dtype``."""
    return _option("dtype", _DTYPES, "fp32", "Of the weights.")(command)


def json_option(command: F) -> F:
    """``--json``: for programs."""
    return click.option("--json", "is_json", is_flag=True, help="Print JSON for programs.")(command)


def device_options(command: F) -> F:
    """``--device`` and ``--dtype``, where int8 and int4 are allowed too."""
    command = _option("dtype", _PRECISIONS, "fp32", "Of the weights.")(command)
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
