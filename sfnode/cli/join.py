"""``sfnode join``: run a node. Its help shows the options in groups, the most important first."""

from collections.abc import Mapping
from dataclasses import replace

import click

from sfnode.children import stop_signals
from sfnode.cli import joining
from sfnode.cli.join_options import join_options, output_options
from sfnode.cli.options import is_json
from sfnode.cli.remembered_options import given_settings
from sfnode.run import JoinOptions, private_words

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Options that matter most": (
        "--invite", "--data", "--model", "--data-dir", "--listen", "--device", "--dtype", "--hours",
        "--max-memory", "--relay",
    ),
    "Run": ("--name", "--bootstrap", "--run", "--basis", "--key", "--owner-key"),
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
_OTHERS = "Other options"


class GroupedCommand(click.Command):
    """Prints the options of a command by `GROUPS`; all others come last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = {param.opts[-1]: param for param in self.get_params(ctx) if isinstance(param, click.Option)}
        grouped = {name for names in GROUPS.values() for name in names}
        others = tuple(name for name in options if name not in grouped)
        for title, names in {**GROUPS, _OTHERS: others}.items():
            rows = [row for name in names if name in options and (row := options[name].get_help_record(ctx))]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


@click.command(cls=GroupedCommand)
@join_options
@output_options
@click.pass_context
def join(context: click.Context, options: JoinOptions, log_level: str, is_verbose: bool) -> None:
    """Join a run and train in it, or start one from a run file.

    ADDRESS is the string to join that the run's owner has sent you, for you alone: give it as @FILE, or as - and paste
    it when you are asked. As a word on the command line, others on this machine may read it in the process list.

    The node remembers its options in its data directory: `sfnode start` starts it again with them, and so does a join,
    where options that you give win. `sfnode config` shows and changes them.

    \b
    Join:   sfnode join -
    Own:    sfnode join @string.txt --data train.jsonl
    Start:  sfnode join --run my.run --listen /ip4/0.0.0.0/tcp/4001
    Again:  sfnode start my-run
    """
    if options.invite is not None:
        options = replace(options, invite="".join(private_words(options.invite, "the invitation")))
    stop_signals.end_at_once()  # what a node is made of is imported
    joining.run_node(options, given_settings(context), log_level, is_json=is_json(), is_verbose=is_verbose)
