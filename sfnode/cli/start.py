"""``sfnode start``: run a node again as it ran before."""

from __future__ import annotations

from pathlib import Path

import click

from protocol.errors import OperatorError
from sfnode.cli.join_options import exit_option, output_options
from sfnode.cli.joining import run_node
from sfnode.cli.options import data_dir_option
from sfnode.run import JoinOptions, RunSource, read_node_file
from sfnode.storage import NODE_FILE, read_manifest


@click.command()
@data_dir_option
@exit_option
@output_options
def start(data_dir: Path, is_exiting_when_finished: bool, log_level: str, is_json: bool) -> None:
    """Start a node again with the options that it remembers from `sfnode join` and `sfnode config set`.

    \b
    Example: sfnode start --data-dir ~/.sfnode/my-run-0123456789ab
    """
    directory = data_dir.expanduser()
    if read_node_file(directory) is None:
        raise OperatorError(
            f"{directory} has no {NODE_FILE}: no node has started there that remembers its options. Start it once with "
            f"`sfnode join --data-dir {directory}` and the options that it is to have"
        )
    read_manifest(directory)
    options = JoinOptions(source=RunSource(data_dir=directory), is_exiting_when_finished=is_exiting_when_finished)
    run_node(options, frozenset(), log_level, is_json)
