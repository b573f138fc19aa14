"""Remember options of ``sfnode join`` as fields of `node.toml`, under the names of the options.

The command line overrides the file, and the file overrides the default. A value has three forms:

    form, and examples                 made by                      read by
    typed: "8", "rows.csv"             people                       click for `join`, `converted` for `config set`
    of `JoinOptions`: 8, "rows.csv"    these two, and `_from_file`  the node, and `as_kept`
    in node.toml: 8, "/here/rows.csv"  `as_kept`                    `_from_file`: checks it, then `converted`
"""

import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import gettempdir

import click
from click.core import ParameterSource

from protocol.errors import OperatorError
from protocol.run import Manifest
from sfnode.cli.join_options import join_options
from sfnode.cli.options import address_words
from sfnode.run import FieldValue, JoinOptions, find_model, node_toml, run_address, values_of, with_values
from sfnode.storage import DataDirectory, disk, example_files, pasteable

# Each is kept elsewhere in the directory, names the directory, is secret, or concerns a single start.
_NOT_REMEMBERED = frozenset({"run", "basis", "data-dir", "invite", "key", "exit-when-finished"})
BOOTSTRAP = "bootstrap"
_MODEL, _COMMAND, _SOCKET = "model", "private-reward", "worker-socket"
_FILES = frozenset({"data", "eval-data", _SOCKET, "owner-key"})


class Origin(StrEnum):
    """Names the source of a setting's value."""

    COMMAND_LINE = "command line"
    FILE = "node.toml"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOption:
    """Holds one option for a start; ``value``: as in the file, None where the option has none."""

    value: FieldValue | None
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """Holds the options of a start: as `JoinOptions` to run with, and by option name to show and keep."""

    options: JoinOptions
    settings: Mapping[str, HeldOption]

    def keep(self, data_dir: DataDirectory) -> None:
        """Write what was typed into `node.toml`; what `sfnode config` has changed since the start stays. OperatorError.

        A start takes as long as its downloads.
        """
        with data_dir.changing():
            fields = other_fields(data_dir, "")
            for key, each in self.settings.items():
                if each.origin is Origin.COMMAND_LINE:
                    fields.pop(key, None)
                    fields |= {} if each.value is None else {key: each.value}
            node_toml.write_node_file(data_dir, fields)


def _key(option: click.Option) -> str:
    return option.opts[-1].removeprefix("--")


@click.command()
@join_options
def _declared(options: JoinOptions) -> None:
    """Holds the options; nobody calls it."""


SETTINGS: Mapping[str, click.Option] = {
    _key(option): option
    for option in _declared.params
    if isinstance(option, click.Option) and _key(option) not in _NOT_REMEMBERED
}


def given_settings(context: click.Context) -> frozenset[str]:
    """Return the settings that the operator has typed for this command."""
    typed = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    given = {key for key, option in SETTINGS.items() if option.name in typed}
    # The argument ADDRESS fills the same setting as --bootstrap.
    return frozenset(given | {BOOTSTRAP}) if "addresses" in typed else frozenset(given)


def recall(options: JoinOptions, given: frozenset[str], data_dir: DataDirectory) -> Recalled:
    """Complete ``options`` with what the node of a data directory remembers. Raises OperatorError.

    ``given``: the settings that were typed, which stay as they are.
    """
    held = {key: value for key, value in read_settings(data_dir).items() if key not in given}
    folder = disk.from_home(str(held.get(_SOCKET, os.sep))).parent
    if not os.path.exists(folder) and folder.is_relative_to(gettempdir()):
        del held[_SOCKET]  # an ended testnet's, which took its folder along: the node starts a worker of its own
    completed = with_values(options, {_field(key): value for key, value in held.items()})
    values = values_of(completed)

    def origin(key: str) -> Origin:
        return Origin.COMMAND_LINE if key in given else Origin.FILE if key in held else Origin.DEFAULT

    settings = {key: HeldOption(value=as_kept(key, values[_field(key)]), origin=origin(key)) for key in SETTINGS}
    return Recalled(options=completed, settings=settings)


def typed_options(context: click.Context) -> tuple[JoinOptions, frozenset[str]]:
    """Return the typed settings of ``context`` as `JoinOptions`, and their names, for a command other than join."""
    given = given_settings(context)
    typed = {key: context.params[SETTINGS[key].name or key] for key in given}
    if BOOTSTRAP in typed:
        typed[BOOTSTRAP] = tuple(address_words(typed[BOOTSTRAP]))
    values = {_field(key): _understood(key, value) for key, value in typed.items()}
    return with_values(JoinOptions(), values), given


def _field(key: str) -> str:
    """Return the field of `JoinOptions` that holds the setting ``key``."""
    return "nodes" if key == BOOTSTRAP else SETTINGS[key].name or key


# --- the file


def read_settings(data_dir: DataDirectory) -> dict[str, object]:
    """Return the fields of `node.toml` as `JoinOptions` takes them; empty without the file. Raises OperatorError."""
    path = data_dir.node_file
    return {key: _from_file(key, value, path) for key, value in (node_toml.read_node_file(data_dir) or {}).items()}


def model_of(manifest: Manifest, data_dir: DataDirectory, model: str | None, revision: str | None) -> str:
    """Return the typed model, else the copy that the node remembers, if it is there, else the run's. OperatorError."""
    held = None if model is not None else read_settings(data_dir).get(_MODEL)
    is_there = isinstance(held, str) and held.startswith(("/", "~")) and os.path.exists(disk.from_home(held))
    return find_model(manifest, str(held) if is_there else model, revision)


def other_fields(data_dir: DataDirectory, key: str) -> dict[str, FieldValue]:
    """Return the content of `node.toml` without the field ``key``, which may be wrong. Raises OperatorError."""
    path, fields = data_dir.node_file, node_toml.read_node_file(data_dir) or {}
    others = {name: as_kept(name, _from_file(name, value, path)) for name, value in fields.items() if name != key}
    return {name: value for name, value in others.items() if value is not None}


def _from_file(key: str, value: object, path: Path) -> object:
    where = f"{path}: {check_key(key, str(path))}"
    option = SETTINGS[key]
    kind, wanted = _form_of(option)
    values = value if option.multiple else [value]
    if not isinstance(values, list) or any(type(each) is not kind for each in values):
        raise OperatorError(
            f"{where} = {value!r}: expected {wanted}. `{pasteable('sfnode config set', key)} ...` writes it, too"
        )
    is_path = str(value).startswith(".") if key == _MODEL else _is_file(key, str(value))
    if is_path and not str(value).startswith(("/", "~")):
        raise OperatorError(f"{where} = {value!r}: from which folder? Write the whole path, from / on")
    taken = converted(key, value, where)
    if key == BOOTSTRAP and run_address.parse_run_addresses(values).invitation:
        raise OperatorError(
            f"{where}: the string to join holds an invitation, which no file keeps. Take this line out, and give the "
            f"string to `{pasteable('sfnode join - --data-dir', path.parent)}`, which uses it"
        )
    return taken


def check_key(key: str, where: str) -> str:
    """Return ``key``. OperatorError: a node remembers no option of that name."""
    if key not in SETTINGS:
        raise OperatorError(f"{where}: there is no field {key!r}. Known: {', '.join(sorted(SETTINGS))}")
    return key


def _form_of(option: click.Option) -> tuple[type, str]:
    """Return the TOML type of a value (of each item in a list), and a phrase for the whole."""
    if option.is_flag:
        return bool, "true or false"
    if isinstance(option.type, click.IntRange):
        return int, "a whole number"
    return str, 'a list of texts, such as ["...", "..."]' if option.multiple else 'a text, such as "..."'


def converted(key: str, value: object, where: str) -> object:
    """Convert a value or its text to what `JoinOptions` takes; ``where``: its source, for errors. OperatorError."""
    try:
        return _understood(key, SETTINGS[key].process_value(click.Context(_declared), value))
    except click.BadParameter as error:
        raise OperatorError(f"{where} = {value!r}: {error.message}") from None
    except OperatorError as error:
        raise OperatorError(f"{where}: {error}") from None


def _understood(key: str, value: object) -> object:
    """Return the value of an option as `JoinOptions` takes it, from what click makes of it. Raises OperatorError."""
    return run_address.parse_run_addresses(value).nodes if key == BOOTSTRAP and isinstance(value, tuple) else value


def as_kept(key: str, value: object) -> FieldValue | None:
    """Return a value of `JoinOptions` as it is written to the file, with absolute paths."""
    match value:
        case None | bool() | int():
            return value
        case tuple():
            return [str(each) for each in value]
    text = _from_anywhere(str(value)) if key == _COMMAND else str(value)
    # `exists` returns False where the name is too long.
    is_path = os.path.exists(disk.from_home(text)) if key == _MODEL else _is_file(key, text)
    return str(disk.from_home(text).absolute()) if is_path else text


def _from_anywhere(command: str) -> str:
    """Return a command with whole paths for files that it names from this folder: a start may come from another one."""
    with suppress(ValueError):  # its quotes do not match
        whole = [
            os.path.abspath(word) if (os.sep in word or (number and "." in word)) and os.path.isfile(word) else word
            for number, word in enumerate(shlex.split(command))
        ]
        return command if whole == shlex.split(command) else shlex.join(whole)
    return command


def _is_file(key: str, text: str) -> bool:
    return key in _FILES and not text.startswith(example_files.ELSEWHERE)
