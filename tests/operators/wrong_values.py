"""What operators give by mistake, by the type that click says of an option or argument; and one good call of each
command, in which one value at a time is replaced."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import click

from sfnode.cli import cli
from tests.operators.planted_folder import NODES
from tests.support.commands import commands_below
from tests.support.manifests import OWNER

_AUTHOR: Final = OWNER.author.hex()
_TASK: Final = "--model embedded:tiny-opt --task embedded:reviews"
_NODE: Final = "--data-dir node"
_OWNED: Final = f"--owner-key owner.key {_NODE}"
_ADDRESS: Final = "/ip4/127.0.0.1/tcp/4001/p2p/12D3KooWNtad85FCBXiYiRW4EpMg3ZCjyq2LoDG6qs9hc8VaHeaX"

# Where the work itself would begin, the test stops the command: see `test_wrong_values`.
GOOD_CALLS: Final = {
    "init": f"{_TASK} --plain --steps 8 --out new.run",
    "run admit": f"{_AUTHOR} {_OWNED}",
    "run exclude": f"{_AUTHOR} --from-step 2 {_OWNED}",
    "run invite": f"--owner-key owner.key --run good.run --at {_ADDRESS}",
    "run submit": f"good.statements {_NODE}",
    "run show": "good.run",
    "join": f"--run good.run {_NODE}",
    "list": "",
    "start": _NODE,
    "pause": _NODE,
    "resume": _NODE,
    "stop": _NODE,
    "forget": "node --yes",
    "config show": _NODE,
    "config set": f"threads 2 {_NODE}",
    "config unset": f"threads {_NODE}",
    "testnet": "--dir new-net --data embedded:reviews",
    "status": _NODE,
    "top": "node --once",
    "doctor": _NODE,
    "log verify": "node",
    "log show": "node",
    "log export": f"new.sflog {_NODE}",
    "log import": "good.sflog --data-dir new-node",
    "report": "node --out new.html",
    "eval": _NODE,
    "ask": f"hello {_NODE}",
    "export": f"{_NODE} --out new-model",
    "audit": _NODE,
    "id show": _NODE,
    "id new": "--out new.key",
    "id backup": f"new.backup {_NODE} --passphrase-file passphrase",
    "id restore": "good.backup --data-dir new-node --passphrase-file passphrase",
    "bench step": "",
    "bench answer": "",
    "bench dtypes": "",
}

_PLACES: Final = (
    *("absent", "absent/deep", "letter.txt/inside", "empty", "binary", "letter.txt", "rows.jsonl", "huge", "hollow"),
    *("photos", "photos/holiday.jpg", "photos/loss.svg", "pipe", "null", "endless", "full", "broken-disk", "lost"),
    *("circle", ".", "..", "", "~nobody-here/x", "a" * 300, "bad\udcff", "two\nlines", "\x1b[31mred", "-"),
    *("good.run", "other.run", "owner.key", "other.key", "good.sflog", "good.backup", "good.statements", "passphrase"),
    *("node/manifest.run", "node/identity.key", "node/ledger.sqlite3", "node-link", *NODES),
)
_TEXTS: Final = (
    *("", " ", "x" * 5_000, "bad\udcff", "two\nlines", "\x1b[31mred", "\u202eturned", "{", "{0}", "{a.b}", "%s", "-"),
    *("@", "@absent", "@photos", "@pipe", "@huge", "@binary", "@endless", "../..", "1e999", "nan", "-1"),
    *("[" * 5_000, ",", ":", "/ip4", "sfnode:", "sfnode:v1.", "pypi:", "embedded:"),
)
_NUMBERS: Final = (
    *("", "x", "-1", "0", "1.5", "nan", "inf", "-inf", "1e999", "1_000", "٣"),
    *(str(2**31), str(2**32 + 1), str(2**63), str(2**64), str(10**30), "9" * 5_000),
)
_MAY_BE_PATHS: Final = frozenset({"data", "eval_data", "model", "shape"})  # texts that may name files


@dataclass(frozen=True, slots=True)
class Case:
    """One command line; ``parameter`` has the ``value`` that may be wrong."""

    arguments: tuple[str, ...]
    parameter: click.Parameter
    value: str


def commands() -> dict[str, click.Command]:
    """All commands by the words that name them, without the groups."""
    found = commands_below(cli)
    return {" ".join(words): command for words, command in found if not isinstance(command, click.Group)}


def values_of(parameter: click.Parameter) -> tuple[str, ...]:
    """What is tried for a parameter; nothing for a flag."""
    kind = parameter.type
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return ()
    if isinstance(kind, click.Path):
        return _PLACES
    if isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
        return _NUMBERS
    if isinstance(kind, click.Choice):
        return ("", "x", "bad\udcff", "\x1b[31mred")
    return (*_TEXTS, *(_PLACES if parameter.name in _MAY_BE_PATHS else ()))


def cases_of(name: str, command: click.Command) -> Iterator[Case]:
    """Every call of a command with one value that may be wrong."""
    for parameter in command.params:
        for value in values_of(parameter):
            yield Case(_with(name, command, parameter, value), parameter, value)


def good_call(name: str) -> tuple[str, ...]:
    """The words of a call in which nothing is wrong."""
    return (*name.split(), *shlex.split(GOOD_CALLS[name]))


def _with(name: str, command: click.Command, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """The good call with ``value`` in the place of what it gives to the parameter, or added."""
    words = shlex.split(GOOD_CALLS[name])
    flags = {each.opts[0] for each in command.params if isinstance(each, click.Option) and each.is_flag}
    options: list[str] = []
    arguments: list[str] = []
    if parameter.name == "node" and "--data-dir" in words:  # both would name a node
        at = words.index("--data-dir")
        del words[at : at + 2]
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            arguments.append(word)
        elif word in flags:
            options.append(word)
        elif word in parameter.opts:
            words.pop(0)
        else:
            options += [word, words.pop(0)]
    if isinstance(parameter, click.Option):
        return (*name.split(), *options, parameter.opts[0], value, *arguments)
    place = [each for each in command.params if isinstance(each, click.Argument)].index(parameter)  # type: ignore[arg-type]
    arguments[place : place + 1] = [value]
    return (*name.split(), *options, "--", *arguments)
