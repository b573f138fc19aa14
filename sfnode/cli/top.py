"""``sfnode top``: watch nodes of this machine."""

import click

from sfnode.cli.exit_codes import ExitCode
from sfnode.cli.option_values import NodeFolder
from sfnode.run import default_directory
from sfnode.storage import DataDirectory
from sfnode.top import show


@click.command()
@click.argument("data_dirs", nargs=-1, type=NodeFolder, metavar="[NODE]...")
@click.option(
    "--data-dir", "more", multiple=True, type=NodeFolder, metavar="NODE", help="Show this node, as NODE does."
)
@click.option("--once", "is_once", is_flag=True, help="Print one line for each node, and end.")
def top(data_dirs: tuple[DataDirectory, ...], more: tuple[DataDirectory, ...], is_once: bool) -> None:
    """Show one or more nodes of this machine live.

    NODE is a name of `sfnode list` or a data directory; without any, all nodes of that list are shown.

    Press q to quit. Where there is no terminal, it prints a line for each node every few seconds, until none of them
    reports. The exit code is 0 if all nodes reported at the last look, else 1.

    \b
    Example: sfnode top my-run
    """
    found = (*data_dirs, *more) or tuple(default_directory.nodes_here()) or (default_directory.only_node(),)
    if not show(found, is_once=is_once):
        raise SystemExit(ExitCode.FAILED)
