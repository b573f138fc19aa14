"""`sfnode` commands in shell scripts and documents: found as text, checked against the real command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click

from sfnode.cli import cli


def commands_below(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command and group of commands below ``group``, with the words that name it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands_below(command, (*path, name))


def commands_in(script: str) -> list[list[str]]:
    """The arguments of each `sfnode` command in a shell script; backslashes join lines, comments are left out."""
    joined = re.sub(r"\\\n\s*", " ", script)
    found = re.findall(r"(?:^|[\s(/])sfnode +([^#\n]*)", joined)
    return [shlex.split(re.split(r" *(?:[|;>]|&&|\)$|\) )", text)[0]) for text in map(_quoted, found)]


def _quoted(text: str) -> str:
    """A command substitution inside an argument is that argument: its own text does not matter."""
    return re.sub(r'"\$\([^)]*\)"', "SUBSTITUTED", text)


def parse_command(arguments: list[str]) -> None:
    """Check a command's name, options and values without running it; click.UsageError says what is wrong."""
    if arguments[-1:] == ["--help"]:
        arguments = arguments[:-1]
        if not arguments:
            return
    command: click.Command = cli
    context = click.Context(cli, info_name="sfnode")
    while isinstance(command, click.Group):
        name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        command, context = found, click.Context(found, parent=context, info_name=name)
    command.make_context(context.info_name, list(arguments), parent=context.parent)
