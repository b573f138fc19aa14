"""``sfnode join``: run a node."""

from __future__ import annotations

from dataclasses import replace

import click

from sfnode.cli.joining.grouped_help import GroupedCommand
from sfnode.cli.joining.join_options import join_options, output_options
from sfnode.cli.joining.running import run_node
from sfnode.cli.joining.settings import given_settings
from sfnode.run import JoinOptions, private_words


@click.command(cls=GroupedCommand)
@join_options
@output_options
@click.pass_context
def join(context: click.Context, options: JoinOptions, log_level: str, is_json: bool) -> None:
    """Join a run and train in it, or start one from a run file.

    ADDRESS is what a node of the run prints at its start: sfnode:RUN@ADDRESS. Only that run is joined. A string with an
    invitation is for you alone: give it as @FILE, or as - and paste it when you are asked. As a word on the command
    line, others on this machine may read it in the process list.

    The node remembers its options in its data directory: `sfnode start` starts it again with them, and so does a join,
    where options that you give win. `sfnode config` shows and changes them.

    \b
    Invited: sfnode join -
    Join:   sfnode join sfnode:6f1c...@/ip4/203.0.113.7/tcp/4001/p2p/12D3... --model facebook/opt-1.3b
    Start:  sfnode join --run my.run --listen /ip4/0.0.0.0/tcp/4001
    Again:  sfnode start --data-dir ~/.sfnode/my-run-0123456789ab
    """
    if options.invite is not None:
        options = replace(options, invite="".join(private_words(options.invite, "the invitation")))
    run_node(options, given_settings(context), log_level, is_json)
