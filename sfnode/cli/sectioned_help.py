"""The help of `sfnode` itself: its commands in sections, by what people want to do."""

from collections.abc import Mapping, Sequence

import click


class SectionedGroup(click.Group):
    """A group of commands that lists them in sections."""

    sections: Mapping[str, Sequence[click.Command]] = {}

    def set_sections(self, sections: Mapping[str, Sequence[click.Command]]) -> None:
        """Take these commands, each under the title of its section."""
        self.sections = sections
        for commands in sections.values():
            for command in commands:
                self.add_command(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        for title, commands in self.sections.items():
            rows = [(str(each.name).ljust(width), each.get_short_help_str(formatter.width)) for each in commands]
            with formatter.section(title):
                formatter.write_dl(rows)
