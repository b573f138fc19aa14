"""``sfnode start``: run a node again as it ran before."""

import click

from protocol.errors import OperatorError
from sfnode.children import stop_signals
from sfnode.cli import joining
from sfnode.cli.join_options import exit_option, output_options
from sfnode.cli.options import is_json, node_option
from sfnode.run import JoinOptions, RunSource, node_toml
from sfnode.storage import DataDirectory, pasteable


@click.command()
@node_option
@exit_option
@output_options
def start(data_dir: DataDirectory, is_exiting_when_finished: bool, log_level: str, is_verbose: bool) -> None:
    """Start a node again with the options that it remembers.

    They come from `sfnode join` and `sfnode config set`.

    \b
    Example: sfnode start my-run
    """
    if node_toml.read_node_file(data_dir) is None:
        text = f"{data_dir} has no node.toml: no node has started there that remembers its options. Start it once with"
        following = pasteable("sfnode join --data-dir", data_dir)
        raise OperatorError(f"{text} `{following}` and the options that it is to have", "no_node")
    data_dir.signed_manifest()
    options = JoinOptions(source=RunSource(data_dir=data_dir), is_exiting_when_finished=is_exiting_when_finished)
    stop_signals.end_at_once()  # what a node is made of is imported
    joining.run_node(options, frozenset(), log_level, is_json=is_json(), is_verbose=is_verbose)
