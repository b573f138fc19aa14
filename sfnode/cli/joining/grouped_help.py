"""The help of ``sfnode join``: its options in groups, the most important first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Options that matter most": (
        "--invite", "--data", "--model", "--data-dir", "--listen", "--device", "--dtype", "--hours", "--max-memory",
        "--relay",
    ),
    "Run": ("--bootstrap", "--run", "--basis", "--key"),
    "When to train, and what it may take": ("--max-upload", "--only-when-idle", "--on-battery"),
    "Training": (
        "--revision", "--eval-data", "--eval-every", "--threads", "--worker-socket", "--device-memory", "--snapshot",
        "--snapshot-authors",
    ),
    "Network": (
        "--announce", "--upnp", "--no-mdns", "--neighbours-fixed", "--neighbours-min", "--limit-private",
        "--trusted-proxy", "--memory-max",
    ),
    "The model's files, from and for neighbours": (
        "--no-share-model", "--share-rate", "--no-fetch-model", "--fetch-rate",
    ),
}  # fmt: skip
_OTHERS: Final = "Other options"


class GroupedCommand(click.Command):
    """Prints the options of a command by `GROUPS`; all others come last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options for --help; click calls this."""
        options = {param.opts[-1]: param for param in self.get_params(ctx) if isinstance(param, click.Option)}
        grouped = {name for names in GROUPS.values() for name in names}
        others = tuple(name for name in options if name not in grouped)
        for title, names in {**GROUPS, _OTHERS: others}.items():
            rows = [row for name in names if name in options and (row := options[name].get_help_record(ctx))]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
