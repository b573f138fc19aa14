"""`sfnode` itself: its commands in sections, by what people want to do. A command is imported when it is asked for."""

import gc
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from sfnode.children import stop_signals

_ELSEWHERE = {"resume": "pause"}  # command -> the module that it lives in, where that has another name


class SectionedGroup(click.Group):
    """A group of the commands in this package, listed in sections. Each lives in the module that has its name."""

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in self._sections.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of that name. click calls this."""
        if cmd_name not in self.list_commands(ctx):
            return None
        # What is imported makes no garbage and stays to the end: to look for some meanwhile, and once more when the
        # process ends, takes a quarter of the time.
        gc.disable()
        try:
            module = import_module(f"sfnode.cli.{_ELSEWHERE.get(cmd_name, cmd_name)}")
        finally:
            gc.freeze()
            gc.enable()
            stop_signals.end_in_order()
        return next(each for each in vars(module).values() if isinstance(each, click.Command) and each.name == cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.list_commands(ctx)))
        for title, names in self._sections.items():
            found = {name: command for name in names if (command := self.get_command(ctx, name))}
            rows = [(name.ljust(width), each.get_short_help_str(formatter.width)) for name, each in found.items()]
            with formatter.section(title):
                formatter.write_dl(rows)
